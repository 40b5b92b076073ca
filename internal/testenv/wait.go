package testenv

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// Patience is how long a test waits for what must happen before it fails.
	Patience = time.Minute
	// askAgain is how long to wait before asking again.
	askAgain = 5 * time.Millisecond
)

// Eventually asks until the answer is yes, and reports whether it came before Patience was over. It
// is for events that nothing reports: a file, another process.
func Eventually(ask func() bool) bool {
	for deadline := time.Now().Add(Patience); ; time.Sleep(askAgain) {
		if ask() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// WhenWritten returns what a program writes to a file when it is ready, without the space around
// it.
func WhenWritten(t testing.TB, path string) (text string) {
	t.Helper()
	if !Eventually(func() bool {
		data, err := os.ReadFile(path)
		text = strings.TrimSpace(string(data))
		return err == nil && text != ""
	}) {
		t.Fatalf("%s was not written", path)
	}
	return text
}

// NoMoreGoroutines waits until there are no more goroutines than before. Goroutines end some
// instructions after their effects can be seen.
func NoMoreGoroutines(t testing.TB, before int) {
	t.Helper()
	if !Eventually(func() bool { return runtime.NumGoroutine() <= before }) {
		t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), Stacks())
	}
}

// Stacks returns the stacks of all goroutines.
func Stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// Processes returns the command lines of the processes that have a text in their environment, by
// their ids. It returns none where there is no /proc.
func Processes(mark string) map[int]string {
	found := map[int]string{}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(mark)) {
			dir := filepath.Dir(path)
			pid, _ := strconv.Atoi(filepath.Base(dir))
			line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may end at this moment
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// Receive takes a value from a channel, or fails the test. what describes the value, where the line
// does not.
func Receive[T any](t testing.TB, from <-chan T, what ...string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(Patience):
		t.Fatalf("%s did not come\n%s", cmp.Or(strings.Join(what, " "), "a value"), Stacks())
		panic("unreachable")
	}
}
