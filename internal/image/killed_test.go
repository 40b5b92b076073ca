package image_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given processes that are killed at any moment of a build, then nothing of them is left after the
// next command, which gives the whole image.
func TestKilledAtRandom(t *testing.T) {
	testenv.NeedPodman(t)
	kills := 3
	if os.Getenv(testenv.Long) != "" {
		kills = 50
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("EVALRUN_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("EVALRUN_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	for n := range kills {
		context := withTool(t, fmt.Sprintf("RUN [\"/tool\", \"write\", \"/first\", \"%d\"]\nRUN [\"/tool\", \"write\", \"/second\", \"5000000\"]\n", n))
		cmd := buildElsewhere(t, dir, context)
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second)))) // any moment will do
		_ = cmd.Process.Kill()                                           // it may have ended
		_ = cmd.Wait()
		i, err := open(t, dir).Get(t.Context(), image.Spec{Context: context}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(read(t, i, "first")) != n || len(read(t, i, "second")) != 5000000 {
			t.Errorf("the image is not whole: %+v", i)
		}
		i.Release()
		nothingLeft(t, dir)
	}
	if _, _, err := open(t, dir).Collect(t.Context(), time.Now(), false, func() {}); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir)
	for _, pattern := range []string{"layers/*", "images/*", "keys/*", "storage"} {
		if left, _ := filepath.Glob(filepath.Join(dir, pattern)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// buildElsewhere starts a process that builds.
func buildElsewhere(t *testing.T, dir, context string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestBuildOfAnotherProcess$")
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_BUILD="+dir+"\n"+context)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// Given a process that is killed in the middle of a build, then nothing of it is left after the next
// command, and that builds as if nothing had been.
func TestKilledInABuild(t *testing.T) {
	testenv.NeedPodman(t)
	dir, context := t.TempDir(), withTool(t, "COPY go /\nRUN [\"/tool\", \"wait\", \"/begun\"]\n")
	if err := os.WriteFile(filepath.Join(context, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	cmd := buildElsewhere(t, dir, context)
	begun := func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "storage/root/overlay/*/diff/begun"))
		return len(found) > 0
	}
	if !testenv.Eventually(begun) {
		t.Error("the build has not begun")
	}
	_ = cmd.Process.Signal(syscall.SIGKILL) // it is there until it is waited for
	_ = cmd.Wait()

	if err := os.WriteFile(filepath.Join(context, "Dockerfile"), []byte("FROM scratch\nCOPY go /\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	get(t, open(t, dir), image.Spec{Context: context})
	nothingLeft(t, dir)
	if begun() {
		t.Error("the container is there")
	}
}

// TestBuildOfAnotherProcess is the process that TestKilledInABuild kills.
func TestBuildOfAnotherProcess(t *testing.T) {
	dir, context, ok := strings.Cut(os.Getenv("EVALRUN_TEST_BUILD"), "\n")
	if !ok {
		t.Skip("it is no test of its own")
	}
	if i, err := open(t, dir).Get(t.Context(), image.Spec{Context: context}, nil); err == nil {
		i.Release()
	}
}

// nothingLeft finds what no command may leave in a folder of images: processes, mounts, containers,
// folders.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if mounts := testenv.ReadFile(t, "/proc/self/mounts"); strings.Contains(mounts, dir) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir) && !strings.Contains(file, fmt.Sprint(os.Getpid())) {
			t.Errorf("a process is left: %q", line)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "storage/root/overlay-containers/containers.json")); err == nil && string(text) != "[]" {
		t.Errorf("containers are left: %s", text)
	}
	group := filepath.Base(image.RunRoot(filepath.Join(dir, "storage")))
	for _, pattern := range []string{dir + "/tmp/*", dir + "/storage/root/overlay/*/merged/*", "/sys/fs/cgroup/" + group, "/sys/fs/cgroup/*/" + group} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
	}
}
