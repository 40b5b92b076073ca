package images

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

func TestMain(m *testing.M) {
	sandbox.InitMain()
	closePodman, err := testenv.OwnPodman(filepath.Join(programs, "podman"))
	if err != nil {
		panic(err)
	}
	testenv.Parallel(4)
	code := m.Run()
	closePodman()
	closeUser()
	closeDocker()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

var programs, _ = os.MkdirTemp("", "evalrun-images")

var build = sync.OnceValue(func() error { return testenv.Build(programs, testenv.Evalrun, testenv.Inside, testenv.ACPAgent) })

// way is how tasks are run in their images.
type way string

// The ways. An ordinary user can build no image and have no container, so for that user the images
// of the same tasks are pulled from a registry, and unpacked.
const (
	asImage  way = sandbox.IsolationImage
	asPodman way = sandbox.IsolationPodman
	asUser   way = "ordinary user"
	// asDocker is in containers of a daemon that shares neither files nor a network with this machine.
	asDocker way = sandbox.IsolationDocker
)

// isolation is the kind of isolation.
func (w way) isolation() string {
	if w == asUser {
		return sandbox.IsolationImage
	}
	return string(w)
}

// bare reports whether the tests were told to take a daemon without a network of its own, in which a container cannot
// change between networks, nor have both one and a way to evalrun.
func (w way) bare() bool {
	return w == asDocker && testenv.AnyDocker(testenv.DockerRemote) == testenv.DockerBare
}

// task is a task directory whose image is a small root and some lines of a Dockerfile.
type task struct {
	t   testing.TB
	dir string
	way way
	// isolation is image, podman or docker.
	isolation string
	// env are further variables of evalrun, and as is who runs it; nil for this user.
	env []string
	as  *syscall.Credential
}

// newTask makes a task of a task.toml, lines of a Dockerfile, a solution and tests.
func newTask(t testing.TB, w way, config, dockerfile, solution, test string) *task {
	t.Helper()
	if w == asDocker {
		testenv.NeedDocker(t)
	} else {
		testenv.NeedPodman(t)
		testenv.Need(t, testenv.Bwrap, sandbox.ImageAvailable())
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	k := &task{t: t, way: w, isolation: w.isolation()}
	switch w {
	case asUser:
		k.dir = theUser(t).folder(t)
	case asDocker:
		k.dir = t.TempDir()
		k.env = []string{"DOCKER_HOST=" + theDaemon(t).Host}
		dockerfile += "LABEL test=\"" + t.Name() + "\"\n"
	default:
		k.dir = t.TempDir()
	}
	if err := os.MkdirAll(k.path("environment"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", testenv.SmallRoot(t), k.path("environment/root")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, content := range map[string]string{
		"task.toml": config, "instruction.md": "Do it.\n", "environment/Dockerfile": "FROM scratch\nCOPY root /\n" + dockerfile,
		"solution/solve.sh": "set -e\n" + solution, "tests/test.sh": "set -e\nreward() { echo $1 >/logs/verifier/reward.txt; }\nreward 0\n" + test + "\nreward 1\n",
	} {
		k.write(name, content)
	}
	if w == asDocker && os.Getenv("EVALRUN_DOCKER_MEMBER") != "" { // the tests that run in every way do it by hand
		k.asMember(anHourOff)
	}
	return k
}

func (k *task) path(name string) string { return filepath.Join(k.dir, "task", name) }

func (k *task) write(name, content string) {
	k.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(k.path(name)), 0o755), os.WriteFile(k.path(name), []byte(content), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *task) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(programs, "evalrun"), args...)
	cmd.Dir = k.dir
	if k.way == asUser {
		theUser(k.t).start(k, cmd)
	} else {
		cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "EVALRUN_IMAGES="+filepath.Join(programs, "images"))
	}
	if k.as != nil {
		if err := give(k.dir); err != nil {
			k.t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: k.as}
	}
	cmd.Env = append(cmd.Env, k.env...)
	return cmd
}

// evalrun runs the program and returns what it printed.
func (k *task) evalrun(code int, args ...string) string {
	k.t.Helper()
	cmd := k.command(args...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		k.t.Fatalf("evalrun %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

// rollout is what the results document says of the only rollout.
type rollout struct {
	Status      string
	Score       *float64
	Isolation   string
	Environment string
	Image       string
	TaskDigest  string
	Error       *struct{ Category, Message string }
	// LimitsWithoutEffect are those of the task that this machine cannot keep.
	LimitsWithoutEffect []struct{ Key, Reason string }
	RefusedConnections  *schemas.RefusedConnections
	Results             []struct {
		Result struct{ Details json.RawMessage }
	} `json:"evaluationRunResults"`
}

func (k *task) results() rollout {
	k.t.Helper()
	all := k.allResults()
	if len(all) != 1 {
		k.t.Fatalf("%d rollouts", len(all))
	}
	return all[0]
}

// allResults is results for several rollouts.
func (k *task) allResults() []rollout {
	k.t.Helper()
	var doc struct {
		Results []rollout `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal([]byte(testenv.ReadFile(k.t, k.dir, "results.json")), &doc); err != nil {
		k.t.Fatal(err)
	}
	return doc.Results
}

// passes runs the oracle, which must get the reward 1 in the image.
func (k *task) passes() rollout {
	k.t.Helper()
	out := k.evalrun(0, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
	r := k.results()
	if r.Score == nil || *r.Score != 1 || r.Isolation != k.isolation || r.Environment != "image" ||
		!strings.HasPrefix(r.Image, "sha256:") || r.TaskDigest == "" {
		k.t.Fatalf("%+v\n%s\n%s", r, out, k.log())
	}
	return r
}

// log is what the verifier has printed.
func (k *task) log() string {
	files, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/verifier/test-stdout.txt")) // the pattern is valid
	text := ""
	for _, f := range files {
		data, _ := os.ReadFile(f) // nothing is no reason to fail
		text += string(data)
	}
	return text
}

// inEach runs a test in every way that tasks are run in their images.
func inEach(t *testing.T, test func(t *testing.T, w way)) { inWays(t, test, asImage, asPodman, asUser) }

// inAll is inEach, and in containers of a daemon.
func inAll(t *testing.T, test func(t *testing.T, w way)) {
	inWays(t, test, asImage, asPodman, asUser, asDocker)
}

func inWays(t *testing.T, test func(t *testing.T, w way), ways ...way) {
	t.Parallel()
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

const plain = "schema_version = \"1.3\"\n"
