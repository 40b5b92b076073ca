package container

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.InitMain()
	os.Exit(m.Run())
}

// space is a container of the engine for a test, and the config of its processes.
func space(t *testing.T, e *Engine, spec Spec) (*Container, sandbox.Config) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Image == "" {
		spec.Image = baseImage
	}
	if spec.Network == "" {
		spec.Network = NetworkNone
	}
	if spec.Rollout == "" {
		spec.Rollout = "test/" + t.Name()
	}
	spec.Purpose, spec.Executable = "agent", self
	c := e.New(spec)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c, sandbox.Config{Isolation: e.Name(), Space: c}
}

const baseImage = "docker.io/library/debian:bookworm-slim"

// shell runs a script and returns what it printed and how it ended.
func shell(t *testing.T, cfg *sandbox.Config, script string) (string, sandbox.Exit) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	exit, err := sandbox.Run(t.Context(), sandbox.Command{
		RolloutID: "test/" + t.Name(), Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Stdout: &out, Stderr: &out, Config: cfg, Executable: self,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

func podman(t *testing.T) *Engine {
	t.Helper()
	e, err := Find(t.Context(), "podman")
	if err != nil {
		t.Skip(err)
	}
	if _, err := e.Image(t.Context(), baseImage); err != nil {
		t.Skip(err)
	}
	return e
}

func TestProcessesLiveInAContainer(t *testing.T) {
	c, cfg := space(t, podman(t), Spec{})
	out, exit := shell(t, &cfg, `id -u; echo $HOME; echo $EVALRUN_ROLLOUT; ls -d /opt; ls /proc | grep -c '^[0-9]'; exit 3`)
	if exit.Ended != nil {
		t.Fatal(exit.Ended)
	}
	if want := "0\n/root\ntest/" + t.Name() + "\n/opt\n"; !strings.HasPrefix(out, want) || exit.State.ExitCode() != 3 {
		t.Errorf("got %q and %v, want %q", out, exit.State, want)
	}
	// A second process is in the same container.
	shell(t, &cfg, `echo kept > /opt/b`)
	if out, _ := shell(t, &cfg, `cat /opt/b`); out != "kept\n" {
		t.Errorf("got %q", out)
	}
	_ = c
}
