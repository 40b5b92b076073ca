package runner

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFilesThatAgentsWriteAreFound gives a folder in which an agent writes a log while it runs, and a
// user a file in between: the log is found after three runs, and ends no wait any more.
func TestFilesThatAgentsWriteAreFound(t *testing.T) {
	dir := t.TempDir()
	log, program := filepath.Join(dir, "agent.log"), filepath.Join(dir, "agent.py")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(program, "1")
	w, err := NewWatch([]string{dir}, []string{filepath.Join(dir, "results.json")})
	if err != nil {
		t.Fatal(err)
	}
	for run := 1; run <= 4; run++ {
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		write(log, string(rune('a'+run)))
		write(filepath.Join(dir, "results.json"), string(rune('a'+run)))
		if run == 2 {
			write(program, "2") // once is no habit
		}
		changed, own, err := w.Ended()
		if err != nil {
			t.Fatal(err)
		}
		var wantChanged, wantOwn []string
		switch run {
		case 1:
			wantChanged = []string{log}
		case 2:
			wantChanged = []string{log, program}
		case 3:
			wantOwn = []string{log}
		}
		if !slices.Equal(changed, wantChanged) || !slices.Equal(own, wantOwn) {
			t.Errorf("run %d: changed %v, own %v; want %v and %v", run, changed, own, wantChanged, wantOwn)
		}
	}
	write(program, "3")
	if changed, err := w.Next(t.Context()); err != nil || !slices.Equal(changed, []string{program}) {
		t.Error(changed, err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if changed, err := w.Next(t.Context()); err != nil || !slices.Equal(changed, []string{program}) {
		t.Error("a file that is gone:", changed, err)
	}
}
