package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that could not be written at the end is refused before anything runs, unless it needs no
// other file in its folder.
func TestOutputsAreCheckedFirst(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	linked, events := filepath.Join(dir, "link.json"), filepath.Join(dir, "events.jsonl")
	for _, path := range []string{events, filepath.Join(elsewhere, "results.json")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(elsewhere, "results.json"), linked); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // else it cannot be removed
	checked := make(chan map[string]error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine: it has lost what root may do
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
		}
		checked <- map[string]error{
			"new":         checkFolder("output", filepath.Join(dir, "results.json")),
			"existing":    checkFolder("junit", events),
			"link":        checkFolder("output", linked),
			"device":      checkFolder("output", "/dev/null"),
			"events":      (&watchFlags{events: events}).checkEvents(),
			"new events":  (&watchFlags{events: filepath.Join(dir, "more.jsonl")}).checkEvents(),
			"no events":   (&watchFlags{}).checkEvents(),
			"link events": (&watchFlags{events: linked}).checkEvents(),
		}
	}()
	refused := map[string]bool{"new": true, "existing": true, "new events": true}
	for name, err := range <-checked {
		if (err != nil) != refused[name] || err != nil && !strings.Contains(err.Error(), "no file can be made in the folder "+dir+": permission denied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
