// Package gatewaytest has clients and servers for the tests of the gateway's packages.
package gatewaytest

import (
	"testing"
	"time"
)

// TaskLimit is how long anything in these tests may take.
const TaskLimit = 30 * time.Second

// WaitFor waits for a value that a test's peer sends.
func WaitFor[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	limit := time.NewTimer(TaskLimit)
	defer limit.Stop()
	select {
	case v = <-c:
	case <-limit.C:
		t.Fatal("nothing came")
	}
	return v
}

// Eventually polls until is returns true. It is for conditions that nobody reports.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(TaskLimit); !is(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}
