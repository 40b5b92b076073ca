package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// builtAnew changes the Dockerfile so that the daemon has none of its steps, and that the containers of its steps have
// the label of the test.
func (k *task) builtAnew() {
	k.t.Helper()
	label := "LABEL test=\"" + k.t.Name() + "\"\n"
	text := strings.Replace(testenv.ReadFile(k.t, k.path("environment/Dockerfile")), label, "", 1)
	k.write("environment/Dockerfile", strings.Replace(text, "FROM scratch\n", "FROM scratch\n"+label, 1))
	k.env = append(k.env, "EVALRUN_IMAGES="+filepath.Join(k.dir, "images"))
}

// another makes another task of the same files.
func (k *task) another() {
	k.t.Helper()
	if out, err := exec.Command("cp", "-a", k.path(""), filepath.Join(k.dir, "other")).CombinedOutput(); err != nil {
		k.t.Fatalf("%v: %s", err, out)
	}
}

// What a daemon cannot build, or has not, is a fault of that task's image that says why. The log is kept, nothing
// of the build is left, and other tasks go on.
func TestImagesThatADaemonCannotHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config, dockerfile string
		says               []string
	}{
		"fails": {"", `RUN ["/bin/bash", "-c", "for i in {1..99}; do echo line $i.; done; exit 3"]`,
			[]string{"\nline 99.\n", "\nline 75.\n", "non-zero code: 3", "\nthe whole log: "}},
		"too long": {"[environment]\nbuild_timeout_sec = 1\n", `RUN ["/bin/sleep", "600"]`, []string{"it took longer than build_timeout_sec, 1s"}},
		// As the kernel does it.
		"without memory": {"", `RUN ["/bin/bash", "-c", "(kill -9 $BASHPID); exit $?"]`, []string{"for want of memory: docker info says how much the machine of the Docker daemon at "}},
		"not there":      {"[environment]\ndocker_image = \"127.0.0.1:1/none:1\"\n", "", []string{"the image 127.0.0.1:1/none:1 is not ", "could not be pulled: "}},
		"another platform": {"[environment]\ndocker_image = \"localhost/evalrun-other:1\"\n", "",
			[]string{"localhost/evalrun-other:1 is an image for linux/other, and the Docker daemon at "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTask(t, asDocker, plain+c.config, "", "", "")
			k.builtAnew()
			if name == "fails" {
				k.another()
			}
			k.write("environment/Dockerfile", testenv.ReadFile(t, k.path("environment/Dockerfile"))+c.dockerfile+"\n")
			if c.dockerfile == "" {
				if err := os.RemoveAll(k.path("environment")); err != nil {
					t.Fatal(err)
				}
			}
			if name == "another platform" {
				k.loadOther()
			}
			run := []string{"run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task"}
			if name == "fails" {
				run = append(run, "other")
			}
			out := k.evalrun(3, run...)
			all := k.allResults()
			slices.SortFunc(all, func(a, b rollout) int { return strings.Compare(a.Status, b.Status) }) // completed, faulted
			r := all[len(all)-1]
			if r.Error == nil || r.Error.Category != string(fault.Image) {
				t.Fatalf("%+v\n%s", r, out)
			}
			for _, text := range c.says {
				if !strings.Contains(r.Error.Message, text) {
					t.Errorf("%q is not in: %s", text, r.Error.Message)
				}
			}
			if name == "fails" {
				_, log, _ := strings.Cut(r.Error.Message, "\nthe whole log: ")
				if text := testenv.ReadFile(t, log); !strings.Contains(text, "\nline 1.\n") || strings.Contains(r.Error.Message, "\nline 50.\n") {
					t.Errorf("shown: %s\nthe whole log: %s", r.Error.Message, text)
				}
				if other := all[0]; other.Score == nil || *other.Score != 1 {
					t.Errorf("the other task: %+v", other)
				}
			}
			if !testenv.Eventually(func() bool { return len(k.containers()) == 0 }) {
				t.Errorf("containers are left: %v", k.containers())
			}
		})
	}
}

// loadOther gives the daemon an image for another platform, by podman, which makes such ones.
func (k *task) loadOther() {
	k.t.Helper()
	testenv.NeedPodman(k.t)
	const name = "localhost/evalrun-other:1"
	k.write("arm/Dockerfile", "FROM scratch\nCOPY Dockerfile /\n")
	if out, err := exec.Command("podman", "build", "--platform", "linux/other", "-t", name, k.path("arm")).CombinedOutput(); err != nil {
		k.t.Fatalf("%v: %s", err, out)
	}
	if err := theDaemon(k.t).Load(k.t.Context(), name); err != nil {
		k.t.Fatal(err)
	}
	if err := os.RemoveAll(k.path("arm")); err != nil {
		k.t.Fatal(err)
	}
}

// Given two tasks with one image at the same time, then the daemon builds it once, and the next run finds it there.
// Tests and solution are not in it, although the task's own folder is what it is built of.
func TestOneBuildInADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain, "COPY . /all/\n", "[ ! -e /all/solution/solve.sh ]; [ ! -e /all/tests/test.sh ]; [ -e /all/instruction.md ]", "")
	k.builtAnew()
	if out, err := exec.Command("sh", "-ec", "cd "+k.path("")+"; mv environment/* .; rmdir environment; ln -s . environment").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k.another()
	var digests []string
	for n, run := range [][]string{{"-j", "8", "task", "other"}, {"task"}} {
		k.evalrun(0, append([]string{"run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle"}, run...)...)
		for _, r := range k.allResults() {
			digests = append(digests, r.Image)
		}
		logs, err := filepath.Glob(filepath.Join(k.dir, "images/logs/*.log"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("%v, %v", logs, err)
		}
		// Who builds it again writes the log again.
		if log := testenv.ReadFile(t, logs[0]); strings.Contains(log, "Using cache") != (n > 0) {
			t.Errorf("run %d: %s", n, log)
		}
	}
	if len(digests) != 3 || len(slices.Compact(digests)) != 1 {
		t.Errorf("the images are %v", digests)
	}
}

// An agent whose container has no memory left is told so, and that its task or the daemon's machine sets the limit.
func TestMemoryInADaemon(t *testing.T) {
	t.Parallel()
	k := newTask(t, asDocker, plain+"[environment]\nmemory_mb = 64\n", "", "a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done", "")
	k.evalrun(3, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
	if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Exit) ||
		!strings.Contains(r.Error.Message, "because they needed more memory than the task allows (environment.memory_mb, 64;") {
		t.Errorf("%+v\n%s", r.Error, k.log())
	}
}
