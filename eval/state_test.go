package eval

import "testing"

func TestTransitions(t *testing.T) {
	for _, from := range States {
		leaves := false
		for _, to := range States {
			leaves = leaves || from.CanBecome(to)
			if to == StatePending && from.CanBecome(to) && from != StateRunning {
				t.Errorf("%s becomes pending", from)
			}
		}
		if leaves == from.IsTerminal() {
			t.Errorf("%s: terminal is %v, but it can become another state: %v", from, from.IsTerminal(), leaves)
		}
	}
}
