package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A root that may be written to keeps what was left in it, for the processes that come later.
func TestRootThatMayBeWrittenTo(t *testing.T) {
	space := bwrapSpace(t)
	root, tmp := t.TempDir(), t.TempDir()
	space.Binds = append(space.Binds, Bind{Host: root, Inside: "/", Writable: true}, Bind{Host: tmp, Inside: "/tmp", Writable: true})
	exit, out := run(t, inSpace(t, space, "set -e; mkdir -p /data/in; echo data >/data/in/x; echo tmp >/tmp/x; echo top >/top; sh -c 'echo a shell'; [ -d /etc ] && [ ! -e /etc/made ] && [ -c /dev/null ] && [ -e /proc/self ]"))
	if !exit.State.Success() || out != "a shell\n" {
		t.Fatalf("%v, %q", exit.State, out)
	}
	if exit, out := run(t, inSpace(t, space, "cat /data/in/x /tmp/x /top")); out != "data\ntmp\ntop\n" {
		t.Errorf("%v, %q", exit.State, out)
	}
	// Programs and settings are the system's, and stay so.
	for _, script := range []string{"echo x >/etc/made", "rm /bin", "mv /bin /elsewhere", "rm -r /usr/bin", "mv /usr /elsewhere", "echo x >/bin/made", "mv /etc /elsewhere", "echo x >/run/evalrun/evalrun"} {
		if exit, out := run(t, inSpace(t, space, script)); exit.State.Success() {
			t.Errorf("%s: done, %q", script, out)
		}
	}
}

// What a process has left where a later one has something mounted is replaced, and no link is
// followed, least of all out of the space.
func TestNothingIsMountedThroughLinks(t *testing.T) {
	space := bwrapSpace(t)
	root, outside := t.TempDir(), t.TempDir()
	space.Binds = append(space.Binds, Bind{Host: root, Inside: "/", Writable: true})
	exit, out := run(t, inSpace(t, space, "mkdir /home; ln -s /oldroot"+outside+" /home/verifier; ln -s "+outside+" /tests; echo x >/solution; mkdir /file; mv /app /app2; ln -s /oldroot"+outside+" /app/made"))
	if !exit.State.Success() && !strings.Contains(out, "busy") {
		t.Fatalf("%v, %q", exit.State, out)
	}
	mine := t.TempDir()
	if err := os.WriteFile(filepath.Join(mine, "mine"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	later := *space
	for _, inside := range []string{"/home/verifier/deep", "/tests", "/solution", "/app/made"} {
		later.Binds = append(later.Binds, Bind{Host: mine, Inside: inside})
	}
	later.Binds = append(later.Binds, Bind{Host: filepath.Join(mine, "mine"), Inside: "/file"})
	if exit, out := run(t, inSpace(t, &later, "cat /home/verifier/deep/mine /tests/mine /solution/mine /app/made/mine /file")); out != strings.Repeat("mine", 5) {
		t.Errorf("%v, %q", exit.State, out)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}
