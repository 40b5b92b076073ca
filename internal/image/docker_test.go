package image_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// startDocker starts a daemon of Docker without any network, for one test.
func startDocker(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("dockerd")
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("dockerd needs root")
	}
	if err != nil {
		t.Skipf("no daemon of Docker can be started: %v", err)
	}
	dir, err := os.MkdirTemp("", "docker-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", program, "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false",
		"--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid", "--host", "unix://"+socket)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the namespace ends with it
		_ = cmd.Wait()
		if err := errors.Join(log.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	if !testenv.Eventually(func() bool { return exec.Command("docker", "version").Run() == nil }) {
		t.Fatalf("the daemon does not answer\n%s", testenv.ReadFile(t, log.Name()))
	}
}

// Given Docker, then it builds the same as podman, with owners and modes, and its images are pulled
// by their names; without its daemon the task is not runnable, with the reason.
func TestDocker(t *testing.T) {
	startDocker(t)
	t.Setenv("EVALRUN_BUILDER", "docker")
	dir := t.TempDir()
	context := folder(t, "Dockerfile", "FROM scratch\nCOPY --chown=7:8 a /d/\nCOPY b /d/\nUSER app\nHEALTHCHECK CMD ok\n", "a", "x", "b", "y")
	if err := os.Chmod(filepath.Join(context, "b"), 0o4755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	i := get(t, open(t, dir), image.Spec{Context: context})
	if read(t, i, "d/a") != "x" || read(t, i, "d/b") != "y" || i.Config.User != "app" || i.Config.Healthcheck == nil {
		t.Errorf("got %+v", i)
	}
	info, err := os.Stat(filepath.Join(i.Lower[0], "d/a"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 7 || info.Sys().(*syscall.Stat_t).Gid != 8 { //nolint:forcetypeassert // on Linux it is one
		t.Errorf("%+v, %v", info, err)
	}
	_, err = open(t, dir).Get(t.Context(), image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\nCOPY none /\n")}, nil)
	faultOf(t, err, fault.Image, "none", "the whole log: ")
	if out, err := exec.Command("docker", "tag", strings.TrimPrefix(i.Digest, "sha256:"), "localhost/named:1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if named := get(t, open(t, dir), image.Spec{Reference: "localhost/named:1"}); named.Digest != i.Digest {
		t.Errorf("got %+v", named)
	}
	t.Setenv("DOCKER_HOST", "unix:///nothing")
	_, err = open(t, t.TempDir()).Get(t.Context(), image.Spec{Context: context}, nil)
	faultOf(t, err, fault.NotRunnable, "docker's daemon does not answer")
}
