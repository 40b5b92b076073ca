package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// ordinaryUser is a user of this machine without any rights, with a HOME and images of its own, and
// a registry to pull them from.
type ordinaryUser struct {
	home     string
	registry *testenv.Registry
	// publishing lets one image at a time be built.
	publishing sync.Mutex
}

// nobody is the number of the ordinary user, and of its group.
const nobody = 65534

var startUser = sync.OnceValues(func() (*ordinaryUser, error) {
	u := &ordinaryUser{home: filepath.Join(programs, "home"), registry: testenv.NewRegistry()}
	return u, errors.Join(os.Chmod(programs, 0o755), u.registry.Trust(u.home), give(u.home))
})

func theUser(t testing.TB) *ordinaryUser {
	t.Helper()
	if _, err := exec.LookPath("skopeo"); err != nil {
		testenv.Need(t, testenv.Podman, err)
	}
	u, err := startUser()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func closeUser() {
	if u, err := startUser(); err == nil {
		u.registry.Close()
	}
}

// give makes a folder, with everything in it, the user's.
func give(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
}

// folder is one of the user's until the end of the test. All that is in it then is the user's own,
// nothing is mounted there, and the user can remove it with what every user has.
func (u *ordinaryUser) folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "evalrun-user-")
	if err = errors.Join(err, give(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for line := range strings.Lines(testenv.ReadFile(t, "/proc/self/mounts")) {
			if strings.Contains(line, dir) {
				t.Errorf("a mount is left: %s", line)
			}
		}
		cmd := exec.Command("rm", "-rf", dir+"/task", dir+"/.evalrun", dir+"/images")
		cmd.SysProcAttr = credential()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the user cannot remove what is left: %v\n%.2000s", err, out)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func credential() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// start makes a command one of the user, who finds the task's image in the registry.
func (u *ordinaryUser) start(k *task, cmd *exec.Cmd) {
	k.t.Helper()
	if _, err := os.Stat(k.path("environment/root")); err == nil {
		u.publish(k)
	}
	if err := give(k.dir); err != nil {
		k.t.Fatal(err)
	}
	cmd.SysProcAttr = credential()
	cmd.Env = []string{"HOME=" + u.home, "PATH=" + programs + ":" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + u.home, "EVALRUN_IMAGES=" + filepath.Join(u.home, "images")}
}

// publish builds the image of a task, and puts its name into task.toml in the place of the
// Dockerfile.
func (u *ordinaryUser) publish(k *task) {
	k.t.Helper()
	u.publishing.Lock()
	defer u.publishing.Unlock()
	tag := filepath.Base(k.dir)
	layout := filepath.Join(k.t.TempDir(), "layout")
	for _, args := range [][]string{{"build", "--format", "docker", "-t", "localhost/" + tag, k.path("environment")}, {"save", "--format", "docker-dir", "-o", layout, "localhost/" + tag}} {
		if out, err := exec.Command("podman", args...).CombinedOutput(); err != nil {
			k.t.Fatalf("%v\n%s", err, out)
		}
	}
	name, err := u.registry.Add(tag, layout)
	if err = errors.Join(err, os.RemoveAll(k.path("environment"))); err != nil {
		k.t.Fatal(err)
	}
	config, of := testenv.ReadFile(k.t, k.path("task.toml")), fmt.Sprintf("[environment]\ndocker_image = %q\n", name)
	if strings.Contains(config, "[environment]\n") {
		config = strings.Replace(config, "[environment]\n", of, 1)
	} else {
		config += of
	}
	k.write("task.toml", config)
}

// What this machine cannot do for an ordinary user is not runnable, and says why; nothing is run in
// the place of it.
func TestWhatAnOrdinaryUserCannotDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, says string }{
		"builds":  {"environment/Dockerfile", "FROM scratch\n", "images are built only by root, or with docker"},
		"compose": {"environment/docker-compose.yaml", "services:\n  main: {}\n", "docker-compose.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTask(t, asUser, plain, "", "", "")
			if err := os.RemoveAll(k.path("environment/root")); err != nil { // so that it is not published
				t.Fatal(err)
			}
			k.write(c.file, c.content)
			out := k.evalrun(3, "run", "-o", "results.json", "--agent", "oracle", "task")
			if r := k.results(); r.Error == nil || r.Error.Category != string(fault.NotRunnable) || !strings.Contains(r.Error.Message, c.says) {
				t.Errorf("%+v\n%s", r.Error, out)
			}
			if out := k.evalrun(0, "validate", "task"); !strings.Contains(out, "cannot be run here") || !strings.Contains(out, c.says) {
				t.Errorf("validate: %s", out)
			}
			// To ask for podman all the same is refused before anything is planned.
			if out := k.evalrun(2, "run", "--isolation", sandbox.IsolationPodman, "--agent", "oracle", "task"); !strings.Contains(out, `isolation "podman" can be had as root only here`) {
				t.Errorf("podman: %s", out)
			}
		})
	}
}

// No control group of this machine is an ordinary user's, so limits that need one have no effect, and
// the results say so.
func TestLimitsOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	k := newTask(t, asUser, plain+"[environment]\nmemory_mb = 64\ncpus = 1\nstorage_mb = 50\n", "", "", "")
	r := k.passes()
	var keys []string
	for _, l := range r.LimitsWithoutEffect {
		if keys = append(keys, l.Key); !strings.Contains(l.Reason, "is not kept here: ") {
			t.Errorf("%+v", l)
		}
	}
	if strings.Join(keys, " ") != "environment.cpus environment.memory_mb" {
		t.Errorf("without effect: %+v", r.LimitsWithoutEffect)
	}
}

// Given an ordinary user's rollout, which has no control group, then the number of its processes is
// bounded all the same, as seen from inside, and those of the user's other rollouts do not count.
func TestProcessesOfAnOrdinaryUserAreBounded(t *testing.T) {
	t.Parallel()
	const script = `[ $(ulimit -u) = 4096 ]
many() { ulimit -u $1; sh -c 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do sleep 600 & all="$all $!"; done; kill $all'; }
(many 100); ! (many 30)`
	k := newTask(t, asUser, plain, "", script, "")
	others := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 50 ]; do sleep 600 </dev/null >/dev/null & i=$((i+1)); done; echo; wait")
	others.SysProcAttr = credential()
	others.SysProcAttr.Setpgid = true
	started, err := others.StdoutPipe()
	if err == nil {
		err = others.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-others.Process.Pid, syscall.SIGKILL)
		_ = others.Wait() // it was killed
	})
	if _, err := started.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	k.passes()
}
