package image_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given a command that fails, then the last 30 lines of what it said are shown, and all of them
// kept.
func TestLastLinesOfABuild(t *testing.T) {
	t.Parallel()
	testenv.NeedPodman(t)
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Context: withTool(t, "RUN [\"/tool\", \"say\"]\n")}, nil)
	faultOf(t, err, fault.Image, "line 99", "line 75", "could not be built")
	if strings.Contains(err.Error(), "line 50\n") {
		t.Errorf("more than 30 lines: %v", err)
	}
	_, log, _ := strings.Cut(err.Error(), "the whole log: ")
	if text := testenv.ReadFile(t, log); !strings.Contains(text, "line 0\n") {
		t.Errorf("the log: %s", text)
	}
}

// T24: Given a build that never ends, when its time is over, then it is a fault that names the limit, and
// no process of it is left.
func TestEndlessBuild(t *testing.T) {
	t.Parallel()
	testenv.NeedPodman(t)
	mark := fmt.Sprintf("never-%d", time.Now().UnixNano())
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Context: withTool(t, "ENV MARK="+mark+"\nRUN [\"/tool\", \"wait\", \"/begun\"]\n"), Timeout: 5 * time.Second}, nil)
	faultOf(t, err, fault.Image, "build_timeout_sec, 5s")
	if !testenv.Eventually(func() bool { return len(testenv.Processes(mark)) == 0 }) {
		t.Errorf("left: %v", testenv.Processes(mark))
	}
}

// Given a build that writes more than its limit, then it is a fault that names the limit.
func TestLargeImage(t *testing.T) {
	t.Parallel()
	testenv.NeedPodman(t)
	dir := t.TempDir()
	_, err := open(t, dir).Get(t.Context(), image.Spec{Context: withTool(t, "RUN [\"/tool\", \"write\", \"/big\", \"60000000\"]\n"), MaxBytes: 50 << 20}, nil)
	faultOf(t, err, fault.Image, "the limit of 50 MB")
	get(t, open(t, dir), image.Spec{Context: withTool(t, "RUN [\"/tool\", \"write\", \"/small\", \"10000000\"]\n"), MaxBytes: 50 << 20})
}

// Given an image that was built on another, when that has changed, then it is built again; when
// that is gone, then it is not.
func TestBaseChanged(t *testing.T) {
	testenv.NeedPodman(t)
	name := fmt.Sprintf("localhost/evalrun-base:%d", time.Now().UnixNano())
	tag := func(content string) {
		t.Helper()
		dir := folder(t, "Dockerfile", "FROM scratch\nCOPY base /\n", "base", content)
		if out, err := exec.Command("podman", "build", "-t", name, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	tag("1")
	dir := t.TempDir()
	s := image.Spec{Context: folder(t, "Dockerfile", "ARG BASE="+name+"\nFROM ${BASE} AS first\nFROM first\nCOPY a /\n", "a", "x")}
	first := get(t, open(t, dir), s)
	if again := get(t, open(t, dir), s); again.Digest != first.Digest || again.Made != 0 {
		t.Errorf("got %+v", again)
	}
	named := get(t, open(t, dir), image.Spec{Reference: name})
	if read(t, named, "base") != "1" {
		t.Errorf("got %+v", named)
	}
	tag("2")
	if changed := get(t, open(t, dir), s); read(t, changed, "base") != "2" {
		t.Errorf("got %+v", changed)
	}
	if out, err := exec.Command("podman", "rmi", "--force", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if again := get(t, open(t, dir), s); again.Made != 0 || read(t, again, "base") != "2" {
		t.Errorf("got %+v", again)
	}
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Reference: name}, nil)
	faultOf(t, err, fault.Image, "is not on this machine, and could not be pulled", name)
}

// Given a context with hidden folders in it, with links out of it, and one that is a link, then no
// build sees what is hidden or outside.
func TestHiddenFromTheBuild(t *testing.T) {
	testenv.NeedPodman(t)
	task := folder(t, "Dockerfile", "FROM scratch\nCOPY . /all/\n", "tests/test.sh", "secret", "solution/solve.sh", "secret", "a", "x", "steps/s/tests/t", "secret")
	if err := os.Symlink("tests/test.sh", filepath.Join(task, "link")); err != nil {
		t.Fatal(err)
	}
	environment := filepath.Join(t.TempDir(), "environment")
	if err := os.Symlink(task, environment); err != nil {
		t.Fatal(err)
	}
	i := get(t, open(t, t.TempDir()), image.Spec{Context: environment, Hidden: []string{
		filepath.Join(task, "tests"), filepath.Join(task, "solution"), filepath.Join(task, "steps", "s", "tests"),
	}})
	if read(t, i, "all/a") != "x" {
		t.Error("a is not there")
	}
	out, err := exec.Command("grep", append([]string{"-r", "secret"}, i.Lower...)...).Output()
	if len(out) > 0 {
		t.Errorf("it is seen: %s, %v", out, err)
	}
}
