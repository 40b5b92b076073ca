package image_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// folder writes files, given as name and content by turns, and returns their folder.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		file := filepath.Join(dir, files[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(files[i+1]), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, dir string) *image.Images {
	t.Helper()
	t.Cleanup(func() { _ = os.RemoveAll(image.RunRoot(filepath.Join(dir, "storage"))) })
	images, err := image.Open(dir, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// get gives an image until the end of the test.
func get(t *testing.T, images *image.Images, s image.Spec) *image.Image {
	t.Helper()
	i, err := images.Get(t.Context(), s, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Release)
	return i
}

// read gives a file of an image: that of the uppermost layer that has it.
func read(t *testing.T, i *image.Image, name string) string {
	t.Helper()
	for _, dir := range i.Lower {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return testenv.ReadFile(t, dir, name)
		}
	}
	t.Fatalf("no layer has %s", name)
	return ""
}

// faultOf is the fault that an error is.
func faultOf(t *testing.T, err error, category fault.Category, says ...string) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) || f.Category != category {
		t.Fatalf("got %v, expected a fault %s", err, category)
	}
	for _, text := range says {
		if !strings.Contains(f.Message, text) {
			t.Errorf("%q is not in: %s", text, f.Message)
		}
	}
}

// Given a Dockerfile of an empty base, when its image is got twice, then it is built once, and the
// second time needs no builder; when a file changes it is built again.
func TestBuiltOnce(t *testing.T) {
	testenv.NeedPodman(t)
	dir := t.TempDir()
	context := folder(t, "Dockerfile", "FROM scratch\nCOPY a /x/\nENV A=b PATH=/x:/y\nUSER app\nWORKDIR /home/agent\nENTRYPOINT [\"/e\"]\nCMD [\"c\"]\nSHELL [\"/s\", \"-c\"]\nHEALTHCHECK --interval=3s --retries=2 CMD ok\n",
		"a", "first", "ignored", "1", ".dockerignore", "ignored\n")
	first := get(t, open(t, dir), image.Spec{Context: context})
	if read(t, first, "x/a") != "first" || first.Made == 0 {
		t.Errorf("got %+v", first)
	}
	c := first.Config
	if c.User != "app" || c.WorkingDir != "/home/agent" || !slices.Contains(c.Env, "A=b") || !slices.Contains(c.Env, "PATH=/x:/y") || c.Entrypoint[0] != "/e" || c.Cmd[0] != "c" || c.Shell[0] != "/s" {
		t.Errorf("configuration %+v", c)
	}
	if h := c.Healthcheck; h == nil || strings.Join(h.Test, " ") != "CMD-SHELL ok" || h.Interval.Seconds() != 3 || h.Retries != 2 {
		t.Errorf("healthcheck %+v", h)
	}

	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	if err := os.WriteFile(filepath.Join(context, "ignored"), []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := get(t, open(t, dir), image.Spec{Context: context}); again.Digest != first.Digest || again.Made != 0 {
		t.Errorf("got %+v after %s", again, first.Digest)
	}
	if err := os.WriteFile(filepath.Join(context, "a"), []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, dir).Get(t.Context(), image.Spec{Context: context}, nil)
	faultOf(t, err, fault.NotRunnable, "this machine has no podman")
	t.Setenv("PATH", path)
	if changed := get(t, open(t, dir), image.Spec{Context: context}); changed.Digest == first.Digest || read(t, changed, "x/a") != "second" {
		t.Errorf("got %+v", changed)
	}
	if i, err := open(t, dir).Reopen(first.Digest); err != nil || i == nil || read(t, i, "x/a") != "first" {
		t.Errorf("reopened: %+v, %v", i, err)
	}
}

// Given buildah in the place of podman, then it builds the same.
func TestBuildah(t *testing.T) {
	testenv.NeedPodman(t)
	if _, err := exec.LookPath("buildah"); err != nil {
		testenv.Need(t, testenv.Podman, err)
	}
	images, err := image.Open(t.TempDir(), image.Options{Builder: "buildah"})
	if err != nil {
		t.Fatal(err)
	}
	i := get(t, images, image.Spec{Context: withTool(t, "RUN [\"/tool\", \"write\", \"/x\", \"5\"]\nHEALTHCHECK CMD ok\nENV PATH=/a:$PATH\n")})
	if len(read(t, i, "x")) != 5 || i.Config.Healthcheck == nil || !slices.ContainsFunc(i.Config.Env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=/a") }) {
		t.Errorf("got %+v", i)
	}
	if _, err := image.Open(t.TempDir(), image.Options{Builder: "none"}); err == nil || !strings.Contains(err.Error(), "podman, buildah, docker") {
		t.Errorf("got %v", err)
	}
	_, err = images.Get(t.Context(), image.Spec{Reference: "127.0.0.1:9/none:1"}, nil)
	faultOf(t, err, fault.Image, "127.0.0.1:9/none:1")
}

// Given many that want one image at once, then it is built once.
func TestOneBuildForMany(t *testing.T) {
	testenv.NeedPodman(t)
	dir, context := t.TempDir(), folder(t, "Dockerfile", "FROM scratch\nCOPY a /\n", "a", "x")
	made := make(chan bool)
	for range 8 {
		go func() {
			i, err := open(t, dir).Get(t.Context(), image.Spec{Context: context}, nil)
			if err != nil {
				t.Error(err)
				made <- false
				return
			}
			i.Release()
			made <- i.Made > 0
		}()
	}
	built := 0
	for range 8 {
		if testenv.Receive(t, made) {
			built++
		}
	}
	if built != 1 {
		t.Errorf("%d builds", built)
	}
}

// Given what cannot be built, then the fault is one of category image that shows why, and keeps the
// log.
func TestBuildFails(t *testing.T) {
	testenv.NeedPodman(t)
	for name, c := range map[string]struct {
		dockerfile string
		says       []string
	}{
		"a file that is not there": {"FROM scratch\nCOPY none /\n", []string{"none", "the whole log: "}},
		"a file outside":           {"FROM scratch\nCOPY ../../../etc/hostname /\n", []string{"hostname"}},
		"no instruction":           {"", []string{"could not be built"}},
		"an unknown instruction":   {"FROM scratch\nFLY\n", []string{"FLY"}},
		"a URL":                    {"FROM scratch\nADD http://127.0.0.1:9/x /x\n", []string{"127.0.0.1:9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, t.TempDir()).Get(context.Background(), image.Spec{Context: folder(t, "Dockerfile", c.dockerfile)}, nil)
			faultOf(t, err, fault.Image, c.says...)
		})
	}
	_, err := open(t, t.TempDir()).Get(t.Context(), image.Spec{Context: folder(t)}, nil)
	faultOf(t, err, fault.Image, "Dockerfile: no such file")
	_, err = open(t, t.TempDir()).Get(t.Context(), image.Spec{Context: folder(t), Platform: "linux/other"}, nil)
	faultOf(t, err, fault.Image, "linux/other", "this machine runs linux/")
}

// T23: what could not be built for a run is not tried again for it: the second time there is no
// builder that could.
func TestFailedBuildIsNotTriedAgain(t *testing.T) {
	testenv.NeedPodman(t)
	im := open(t, t.TempDir())
	spec := image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\nCOPY missing /\n"), For: "run"}
	_, err := im.Get(t.Context(), spec, nil)
	faultOf(t, err, fault.Image, "missing")
	t.Setenv("PATH", "")
	_, err = im.Get(t.Context(), spec, nil)
	faultOf(t, err, fault.Image, "missing")
	spec.For = "another"
	_, err = im.Get(t.Context(), spec, nil)
	faultOf(t, err, fault.NotRunnable, "this machine has no podman")
}

// R21: what breaks off a build is no fault of the image, and is not remembered as one: others of the
// run try.
func TestABuildThatIsBrokenOffIsNoFault(t *testing.T) {
	programs := folder(t, "docker", "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(filepath.Join(programs, "docker"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	images, err := image.Open(t.TempDir(), image.Options{Builder: "docker"})
	if err != nil {
		t.Fatal(err)
	}
	spec := image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\n"), For: "run"}
	lost := errors.New("the lease could not be renewed")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(lost)
	if _, err := images.Get(ctx, spec, nil); !errors.Is(err, lost) || errors.As(err, new(*fault.Fault)) {
		t.Errorf("broken off: %v", err)
	}
	t.Setenv("PATH", "")
	_, err = images.Get(t.Context(), spec, nil)
	faultOf(t, err, fault.NotRunnable, "this machine has no docker")
}

// T23: who waits is told for what.
func TestWaitingForABuildNamesIt(t *testing.T) {
	dir := t.TempDir()
	lock, err := durable.WaitLock(t.Context(), filepath.Join(dir, "lock"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "building"), []byte("slow/Dockerfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "") // what is waited for is not the point
	var told string
	_, err = open(t, dir).Get(t.Context(), image.Spec{Context: folder(t, "Dockerfile", "FROM scratch\n")}, func(what string) {
		told = what
		_ = lock.Close() // which ends the other build
	})
	faultOf(t, err, fault.NotRunnable)
	if !strings.HasSuffix(told, "waits for the build of slow/Dockerfile") {
		t.Errorf("told %q", told)
	}
}
