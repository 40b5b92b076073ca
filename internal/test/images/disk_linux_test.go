package images

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Given a store whose disk is full while an agent works, then evalrun fails and says so, and goes on
// with the rollout once there is room, with nothing of the half-written segment.
func TestStoreOnAFullDisk(t *testing.T) {
	t.Parallel()
	k := newTask(t, asImage, plain, "", "", `[ "$(cat /opt/b)" = once ]`)
	k.write("instruction.md", "[[RUN bash -c 'echo once >>/opt/b; printf %8000000s x >/opt/c']] [[ASK execute go {\"n\":1}]] [[SAY first]]\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	store := filepath.Join(k.dir, ".evalrun")
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", store, "tmpfs", 0, "size=1500k"); err != nil {
		t.Skip("a small disk needs root:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(store, 0); err != nil {
			t.Error(err)
		}
	})
	run := []string{"run", "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task"}
	if out := k.evalrun(4, run...); !strings.Contains(out, store) || !strings.Contains(out, "no space left on device") {
		t.Error(out)
	}
	if err := syscall.Mount("tmpfs", store, "tmpfs", syscall.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	k.evalrun(75, run...)
	var triggers []struct {
		ID string `json:"triggerId"`
	}
	if err := json.Unmarshal([]byte(k.evalrun(0, "triggers", "--json", "r")), &triggers); err != nil || len(triggers) != 1 {
		t.Fatalf("%v: %d triggers", err, len(triggers))
	}
	k.evalrun(0, "approve", triggers[0].ID)
	k.evalrun(0, "resume", "--wait", "-o", "results.json", "r")
	if r := k.results(); r.Score == nil || *r.Score != 1 {
		t.Errorf("%+v\n%s", r, k.log())
	}
}
