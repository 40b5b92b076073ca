package image_test

import (
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

// Given Docker, then it builds the same as podman, with owners and modes, and its images are pulled
// by their names; without its daemon the task is not runnable, with the reason.
func TestDocker(t *testing.T) {
	testenv.NeedDocker(t)
	if _, err := exec.LookPath("docker"); err != nil {
		testenv.Need(t, testenv.Docker, err)
	}
	d, err := testenv.StartDocker(testenv.DockerBare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.End(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DOCKER_HOST", d.Host)
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
