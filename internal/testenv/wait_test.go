package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// Given something that happens after a while, then it is waited for; what never happens is given
// up.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		if !Eventually(func() bool { asked++; return asked == 3 }) || asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		if Eventually(func() bool { return false }) {
			t.Error("what never happens has happened")
		}
	})
}

// Given a file that is made first and written later, then what was written is read.
func TestWhenWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(path, []byte("80\n"), 0o600) }()
	if got := WhenWritten(t, path); got != "80" {
		t.Errorf("%q was written", got)
	}
}

// Given a process with a mark in its environment, then it is found by that until it has ended.
func TestProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	mark := "TESTENV_MARK=" + t.TempDir()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !Eventually(func() bool { return strings.HasPrefix(Processes(mark)[cmd.Process.Pid], "sleep 1000") }) {
		t.Errorf("the process is not found: %v", Processes(mark))
	}
	_, _ = cmd.Process.Kill(), cmd.Wait()
	if left := Processes(mark); len(left) > 0 {
		t.Errorf("the process has ended, but %v is found", left)
	}
}
