package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// baseImage is one of those that CI makes.
const baseImage = "docker.io/library/debian:bookworm-slim"

// roleVar makes the test binary play the part of an evalrun that is killed.
const roleVar = "CONTAINER_TEST_ROLE"

// dirVar is the folder in which it works.
const dirVar = "CONTAINER_TEST_DIR"

func TestMain(m *testing.M) {
	sandbox.InitMain()
	if os.Getenv(roleVar) != "" {
		beKilled()
	}
	os.Exit(m.Run())
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func podman(t *testing.T) *Engine {
	t.Helper()
	testenv.NeedPodman(t)
	e, err := Find(t.Context())
	testenv.Need(t, testenv.Podman, err)
	if err == nil {
		_, err = e.run(t.Context(), "image", "inspect", baseImage)
	}
	testenv.Need(t, testenv.Podman, err)
	return e
}

// rolloutOf is the marker of a test's rollout. Other processes run the same tests in the same storage.
func rolloutOf(t *testing.T) string { return fmt.Sprintf("test/%d/%s", os.Getpid(), t.Name()) }

// box is a container for a test, and the config of its processes.
func box(t *testing.T, e *Engine, spec Spec) (*Container, *sandbox.Config) {
	t.Helper()
	if spec.Network == "" {
		spec.Network = NetworkNone
	}
	spec.Rollout, spec.Executable = rolloutOf(t), self()
	c := e.New(spec)
	t.Cleanup(func() {
		if err := c.Leave(); err != nil {
			t.Error(err)
		}
	})
	root, err := overBase(e, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c, &sandbox.Config{Isolation: sandbox.IsolationPodman, Space: c, Root: root}
}

// overBase is a root over the base image, with what is changed in a folder.
func overBase(e *Engine, dir string) (*sandbox.Root, error) {
	lower, err := e.run(context.Background(), "image", "mount", baseImage)
	r := &sandbox.Root{Lower: []string{lower}, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"), Merged: filepath.Join(dir, "merged")}
	for _, d := range []string{r.Upper, r.Work, r.Merged} {
		err = errors.Join(err, os.Mkdir(d, 0o755))
	}
	return r, err
}

func command(t *testing.T, cfg *sandbox.Config, script string) sandbox.Command {
	return sandbox.Command{Marker: rolloutOf(t), Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: "/",
		Env: []string{"PATH=/usr/bin:/bin"}, Config: cfg, Executable: self()}
}

// shell runs a script in a container and returns what it printed.
func shell(t *testing.T, cfg *sandbox.Config, script string) string {
	t.Helper()
	var out bytes.Buffer
	c := command(t, cfg, script)
	c.Stdout, c.Stderr = &out, &out
	exit, err := sandbox.Run(t.Context(), c)
	if err != nil || exit.Ended != nil {
		t.Fatal(err, exit.Ended)
	}
	if !exit.State.Success() {
		fmt.Fprintf(&out, "%v\n", exit.State)
	}
	return out.String()
}

func TestProcessesLiveInAContainer(t *testing.T) {
	t.Parallel()
	_, cfg := box(t, podman(t), Spec{})
	if got, want := shell(t, cfg, `id -u; echo $HOME $EVALRUN_ROLLOUT; exit 3`), "0\n/root "+rolloutOf(t)+"\nexit status 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// A second process has the same root, and what the first left running is gone.
	shell(t, cfg, `setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo kept >/opt/b`)
	if got := shell(t, cfg, `cat /opt/b; pgrep -x sleep`); got != "kept\nexit status 1\n" {
		t.Errorf("got %q", got)
	}
	// Another user is one of the image.
	cfg.User, cfg.Own = "nobody", []string{"/srv"}
	if got := shell(t, cfg, `exec 2>&1; id -un; touch /srv/mine && ls -ld /srv | cut -d' ' -f3; touch /opt/c`); !strings.HasPrefix(got, "nobody\nnobody\ntouch: ") {
		t.Errorf("got %q", got)
	}
}

func TestNothingOfTheMachineIsInAContainer(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	seen, bound := t.TempDir(), t.TempDir()
	_, cfg := box(t, podman(t), Spec{})
	cfg.Visible, cfg.Binds = []string{seen}, []sandbox.Bind{{Host: bound, Inside: "/logs", Writable: true}}
	got := shell(t, cfg, "ls "+secret+" 2>/dev/null; ls -d "+seen+"; touch "+seen+"/x 2>/dev/null || echo read-only; touch /logs/there; ls /sys/class/net; touch /run/evalrun/x 2>/dev/null || echo read-only")
	if want := seen + "\nread-only\nlo\nread-only\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(bound, "there")); err != nil {
		t.Error(err)
	}
}

// A port of the inner loopback leads out, and a socket of this machine leads in, although the
// container has no network.
func TestWaysThroughTheContainer(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	gateway, err := net.Listen("unix", filepath.Join(dir, "gateway.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	go func() {
		for {
			c, err := gateway.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, "from the gateway")
			c.Close()
		}
	}()
	_, cfg := box(t, podman(t), Spec{})
	cfg.User = "nobody"
	cfg.Forwards = []sandbox.Forward{{Port: 8800, Socket: gateway.Addr().String()}}
	cfg.Spawns = []sandbox.Spawn{{Socket: filepath.Join(dir, "server.sock"), Command: sandbox.SetupCommand{Command: "read line; echo $(id -un) got $line"}}}
	c := command(t, cfg, `exec 3<>/dev/tcp/127.0.0.1/8800; cat <&3; read -r line; echo $line`)
	c.Path, c.Args[0], c.Interactive = "/bin/bash", "bash", true
	p, err := sandbox.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	server, err := net.Dial("unix", cfg.Spawns[0].Socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintln(server, "a call")
	answer := make([]byte, 100)
	n, _ := server.Read(answer)
	if got := string(answer[:n]); got != "nobody got a call\n" {
		t.Errorf("the server says %q", got)
	}
	_ = server.Close()
	_, _ = fmt.Fprintln(p.Stdin, "the end")
	said := make([]byte, 0, 100)
	for buf := make([]byte, 100); ; {
		n, err := p.Stdout.Read(buf)
		if said = append(said, buf[:n]...); err != nil {
			break
		}
	}
	if _, err := p.Wait(t.Context()); err != nil || string(said) != "from the gateway\nthe end\n" {
		t.Errorf("got %q, %v", said, err)
	}
}

func TestTheEndOfAProcessInAContainer(t *testing.T) {
	t.Parallel()
	_, cfg := box(t, podman(t), Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := command(t, cfg, `trap '' TERM; echo trapped; while :; do sleep 1; done`)
	c.Grace, c.Stdout = 100*time.Millisecond, onWrite(cancel)
	exit, err := sandbox.Run(ctx, c)
	if err != nil || exit.Ended == nil || exit.State.ExitCode() != 128+9 {
		t.Errorf("got %v, %v, %v", exit.State, exit.Ended, err)
	}
	if got := shell(t, cfg, `pgrep -x sleep`); got != "exit status 1\n" {
		t.Errorf("got %q", got)
	}
}

// onWrite is called for what a process prints.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// beKilled is an evalrun with a process in a container, which waits for its end.
func beKilled() {
	e, err := Find(context.Background())
	if err != nil {
		panic(err)
	}
	c := e.New(Spec{Rollout: os.Getenv(roleVar), Network: NetworkNone, Executable: self()})
	root, err := overBase(e, os.Getenv(dirVar))
	if err != nil {
		panic(err)
	}
	p, err := sandbox.Start(sandbox.Command{Marker: os.Getenv(roleVar), Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Dir: "/",
		Config: &sandbox.Config{Isolation: "podman", Space: c, Root: root}, Executable: self()})
	if err == nil {
		err = p.Ready(context.Background())
	}
	fmt.Println("ready", err)
	_, err = p.Wait(context.Background())
	panic(err)
}

// After kill -9 nothing runs on, and the next sweep removes the container.
func TestWhatAKilledEvalrunLeavesIsRemoved(t *testing.T) {
	t.Parallel()
	e := podman(t)
	rollout := rolloutOf(t)
	cmd := exec.Command(self())
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), roleVar+"="+rollout, dirVar+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 100)
	n, _ := out.Read(said)
	if got := string(said[:n]); got != "ready <nil>\n" {
		t.Fatalf("got %q", got)
	}
	if _, err := e.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := containerName(rollout)
	if state, err := e.run(t.Context(), "inspect", name, "--format", "{{.State.Status}}"); err != nil || state != "running" {
		t.Fatalf("while its evalrun lives it is %q, %v", state, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := e.run(t.Context(), "wait", name); err != nil { // it ends by itself
		t.Fatal(err)
	}
	if removed, err := e.Sweep(t.Context()); err != nil || removed < 1 {
		t.Errorf("%d were removed, %v", removed, err)
	}
	if _, err := e.run(t.Context(), "container", "inspect", name); err == nil {
		t.Error("the container is still there")
	}
	if source := mountOf(filepath.Join(dir, "merged")); source != "" {
		t.Errorf("its root is still mounted by %s", source)
	}
}
