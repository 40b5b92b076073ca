package images

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestMain(m *testing.M) {
	sandbox.InitMain()
	testenv.Parallel(4)
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

var programs, _ = os.MkdirTemp("", "evalrun-images")

var build = sync.OnceValue(func() error { return testenv.Build(programs, testenv.Evalrun, testenv.ACPAgent) })

// task is a task directory whose image is a small root and some lines of a Dockerfile.
type task struct {
	t   *testing.T
	dir string
}

// newTask makes a task of a task.toml, lines of a Dockerfile, a solution and tests.
func newTask(t *testing.T, config, dockerfile, solution, test string) *task {
	t.Helper()
	testenv.NeedPodman(t)
	testenv.Need(t, testenv.Bwrap, sandbox.ImageAvailable())
	if err := build(); err != nil {
		t.Fatal(err)
	}
	k := &task{t, t.TempDir()}
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
	return k
}

func (k *task) path(name string) string { return filepath.Join(k.dir, "task", name) }

func (k *task) write(name, content string) {
	k.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(k.path(name)), 0o755), os.WriteFile(k.path(name), []byte(content), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

// evalrun runs the program and returns what it printed.
func (k *task) evalrun(code int, args ...string) string {
	k.t.Helper()
	cmd := exec.Command(filepath.Join(programs, "evalrun"), args...)
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "EVALRUN_IMAGES="+filepath.Join(programs, "images"))
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
	Error       *struct{ Category, Message string }
	Results     []struct {
		Result struct{ Details json.RawMessage }
	} `json:"evaluationRunResults"`
}

func (k *task) results() rollout {
	k.t.Helper()
	var doc struct {
		Results []rollout `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal([]byte(testenv.ReadFile(k.t, k.dir, "results.json")), &doc); err != nil || len(doc.Results) != 1 {
		k.t.Fatalf("%v: %d rollouts", err, len(doc.Results))
	}
	return doc.Results[0]
}

// passes runs the oracle, which must get the reward 1 in the image.
func (k *task) passes() rollout {
	k.t.Helper()
	out := k.evalrun(0, "run", "-o", "results.json", "--agent", "oracle", "task")
	r := k.results()
	if r.Score == nil || *r.Score != 1 || r.Isolation != "image" || r.Environment != "image" {
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

const plain = "schema_version = \"1.3\"\n"

// T2: the tests see all that the agent has left, wherever it is, and nothing runs any more.
func TestTestsSeeWhatTheAgentHasLeft(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain, "WORKDIR /app\n", `for f in /tmp/a /opt/b /root/c /etc/d /run/e /var/tmp/f g; do echo $f >$f; done
[ ! -e /tests/test.sh ]; rm /bin/whoami
(while :; do echo alive; sleep 1; done) >/tmp/alive 2>&1 &`,
		`for f in /tmp/a /opt/b /root/c /etc/d /run/e /var/tmp/f; do [ $(cat $f) = $f ]; done
[ $(cat /app/g) = g ]; [ $(pwd) = /app ]; [ ! -e /bin/whoami ]; [ ! -e /solution/solve.sh ]
for p in /proc/[0-9]*/cmdline; do case "$(cat $p 2>/dev/null)" in *solve.sh*) exit 1;; esac; done
[ $HOME = /root ]`)
	k.passes()
	k.evalrun(0, "run", "-o", "results.json", "--agent", "nop", "task")
	if r := k.results(); r.Score == nil || *r.Score != 0 {
		t.Errorf("nop: %+v", r)
	}
	if left, err := filepath.Glob(filepath.Join(k.dir, ".evalrun/work/*/root/*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// An artifact that nobody has written is named.
func TestMissingArtifactOverAnImage(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain+"artifacts = [\"/tmp/a.txt\", \"/opt/there.txt\"]\n", "", "echo x >/opt/there.txt", "")
	r := k.passes()
	if details := string(r.Results[0].Result.Details); !strings.Contains(details, "artifact /tmp/a.txt: missing") || strings.Contains(details, "there.txt") {
		t.Errorf("%s", details)
	}
	if kept, err := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/artifacts/opt/there.txt")); err != nil || len(kept) != 1 {
		t.Errorf("%v, %v", kept, err)
	}
}

// What the image says of its processes holds, as with Docker.
func TestWhatTheImageSays(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain, `ARG V=1
ENV PATH=/x:$PATH OWN=$V
COPY --chown=1234:1235 e /e
USER app
WORKDIR /home/app/work
ENTRYPOINT ["/bin/bash", "/e"]
HEALTHCHECK --interval=1s CMD [ -e /tmp/started ]
`, "[ -e /tmp/started ]; touch() { echo >$1; }; touch /tmp/mine; whoami >/tmp/who",
		`[ $(cat /tmp/who) = app ]; [ $(whoami) = app ]; [ $(pwd) = /home/app/work ]; [ $HOME = /home/app ]
case $PATH in /x:*) ;; *) exit 1;; esac; [ $OWN = 1 ]; [ $(stat -c %U /tmp/mine) = app ]`)
	k.write("environment/e", "echo >/tmp/started; exec \"$@\"\n")
	k.passes()
}

// What task.toml says goes before what the image says.
func TestTaskGoesBeforeItsImage(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain+`[agent]
user = "app"
[verifier]
user = "root"
[environment]
workdir = "/work"
env = { OWN = "task" }
[environment.healthcheck]
command = "echo checked >/tmp/checked"
`, "ENV OWN=image\nWORKDIR /elsewhere\nUSER 4321\nHEALTHCHECK CMD false\n", "", "")
	k.write("solution/solve.sh", "set -e; [ -e /tmp/checked ]; [ $(whoami) = app ]; [ $OWN = task ]; [ $(pwd) = /work ]; echo x >/logs/agent/x; echo done >/tmp/done\n")
	k.write("tests/test.sh", "set -e; echo 0 >/logs/verifier/reward.txt; [ $(cat /tmp/done) = done ]; [ $(id -u) = 0 ]; [ $OWN = task ]; [ $(pwd) = /work ]; echo 1 >/logs/verifier/reward.txt\n")
	k.passes()
}

// What an image lacks is a fault of that task which says so.
func TestImagesThatCannotRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, spoil, says string }{
		"user":     {"[agent]\nuser = \"nobody-here\"\n", "", `no user "nobody-here"`},
		"shell":    {"", "bin/bash", "/bin/bash"},
		"database": {"[agent]\nuser = \"app\"\n", "etc/passwd", `it has no /etc/passwd`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newTask(t, plain+c.config, "", "", "")
			if c.spoil != "" {
				if err := os.Remove(k.path("environment/root/" + c.spoil)); err != nil {
					t.Fatal(err)
				}
			}
			out := k.evalrun(3, "run", "-o", "results.json", "--agent", "oracle", "task")
			if r := k.results(); r.Error == nil || !strings.Contains(r.Error.Message, c.says) {
				t.Errorf("%+v\n%s", r.Error, out)
			}
		})
	}
}

// The agent has no network, and the tests have this machine's.
func TestNetworkOverAnImage(t *testing.T) {
	t.Parallel()
	const interfaces = "lines=0; while read -r line; do lines=$((lines+1)); done </proc/net/dev"
	k := newTask(t, plain+"[agent]\nnetwork_mode = \"no-network\"\n", "", interfaces+"; echo $lines >/tmp/lines", interfaces+"; [ $(cat /tmp/lines) = 3 ]; [ $lines -ge 3 ]; [ -e /etc/resolv.conf ]")
	k.passes()
}

// A verifier of its own has its own root, with the artifacts alone.
func TestSeparateVerifierOverAnImage(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain+"artifacts = [\"/tmp/given\"]\n[verifier]\nenvironment_mode = \"separate\"\n", "WORKDIR /app\n", "echo given >/tmp/given; echo no >/tmp/ambient; echo art >/logs/artifacts/art",
		"[ $(cat /tmp/given) = given ]; [ ! -e /tmp/ambient ]; [ $(cat /logs/artifacts/art) = art ]")
	k.passes()
}

// A coding agent works in the image, is suspended, and gone on with by another process, which finds
// what it has left anywhere. Its own home is not among what the tests see.
func TestSuspendedOverAnImage(t *testing.T) {
	t.Parallel()
	k := newTask(t, plain, "WORKDIR /app\n", "", `[ "$(cat /opt/b)" = once ]; [ ! -e /bin/whoami ]; [ ! -e /home/evalrun/secret ]; [ ! -e /run/evalrun/host ]`)
	k.write("instruction.md", "[[RUN echo once >>/opt/b; rm /bin/whoami; echo $HOME >/tmp/home; echo s >$HOME/secret]] [[ASK execute go {\"n\":1}]] [[SAY first]]\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	k.evalrun(75, "run", "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task")
	var triggers []struct {
		ID string `json:"triggerId"`
	}
	out := k.evalrun(0, "triggers", "--json", "r")
	if err := json.Unmarshal([]byte(out), &triggers); err != nil || len(triggers) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	k.evalrun(0, "approve", triggers[0].ID)
	k.evalrun(0, "resume", "-o", "results.json", "r")
	if r := k.results(); r.Score == nil || *r.Score != 1 {
		t.Errorf("%+v\n%s", r, k.log())
	}
}
