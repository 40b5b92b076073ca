package images

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
)

// T2: the tests see all that the agent has left, wherever it is, and nothing runs any more.
func TestTestsSeeWhatTheAgentHasLeft(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain, "WORKDIR /run\nWORKDIR /app\n", `for f in /tmp/a /opt/b /root/c /etc/d /run/e /var/tmp/f g; do echo $f >$f; done
[ ! -e /tests/test.sh ]; rm /bin/whoami
(while :; do echo alive; sleep 1; done) >/tmp/alive 2>&1 &`,
			`for f in /tmp/a /opt/b /root/c /etc/d /run/e /var/tmp/f; do [ $(cat $f) = $f ]; done
[ $(cat /app/g) = g ]; [ $(pwd) = /app ]; [ ! -e /bin/whoami ]; [ ! -e /solution/solve.sh ]
for p in /proc/[0-9]*/cmdline; do case "$(cat $p 2>/dev/null)" in *solve.sh*) exit 1;; esac; done
[ $HOME = /root ]`)
		k.passes()
		k.evalrun(0, "run", "--isolation", k.isolation, "-o", "results.json", "--agent", "nop", "task")
		if r := k.results(); r.Score == nil || *r.Score != 0 {
			t.Errorf("nop: %+v", r)
		}
		if left, err := filepath.Glob(filepath.Join(k.dir, ".evalrun/work/*/root/*")); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	})
}

// An artifact that nobody has written is named.
func TestMissingArtifactOverAnImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain+"artifacts = [\"/tmp/a.txt\", \"/opt/there.txt\"]\n", "", "echo x >/opt/there.txt", "")
		r := k.passes()
		if details := string(r.Results[0].Result.Details); !strings.Contains(details, "artifact /tmp/a.txt: missing") || strings.Contains(details, "there.txt") {
			t.Errorf("%s", details)
		}
		if kept, err := filepath.Glob(filepath.Join(k.dir, ".evalrun/runs/*/rollouts/*/artifacts/opt/there.txt")); err != nil || len(kept) != 1 {
			t.Errorf("%v, %v", kept, err)
		}
	})
}

// What the image says of its processes and volumes holds, as with Docker: a folder is made where a volume's path
// has none, where the image's links lead, and what is there stays as it is.
func TestWhatTheImageSays(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain, `ARG V=1
ENV PATH=/x:$PATH OWN=$V
COPY --chown=1234:1235 e /e
USER app
RUN ["/bin/mkdir", "-m", "750", "/tmp/own"]
WORKDIR /home/app/work
ENTRYPOINT ["/bin/bash", "/e"]
HEALTHCHECK --interval=1s CMD [ -e /tmp/started ]
VOLUME /tmp/own /data/deep /elsewhere/v
`, "[ -e /tmp/started ]; touch() { echo >$1; }; touch /tmp/mine; whoami >/tmp/who",
			`[ $(cat /tmp/who) = app ]; [ $(whoami) = app ]; [ $(pwd) = /home/app/work ]; [ $HOME = /home/app ]
case $PATH in /x:*) ;; *) exit 1;; esac; [ $OWN = 1 ]; [ $(stat -c %U /tmp/mine) = app ]
[ $(stat -c %a /data/deep) = 755 ]; [ -d /opt/v ]; [ "$(stat -c "%U %a" /tmp/own)" = "app 750" ]`)
		if err := os.Symlink("/opt", k.path("environment/root/elsewhere")); err != nil {
			t.Fatal(err)
		}
		k.write("environment/e", "echo >/tmp/started; exec \"$@\"\n")
		k.passes()
	})
}

// What task.toml says goes before what the image says.
func TestTaskGoesBeforeItsImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain+`[agent]
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
	})
}

// What an image lacks is a fault of that task which says so.
func TestImagesThatCannotRun(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		cases := map[string]struct{ config, spoil, says string }{
			"user":     {"[agent]\nuser = \"nobody-here\"\n", "", `no user "nobody-here"`},
			"shell":    {"", "bin/bash", "/bin/bash"},
			"database": {"[agent]\nuser = \"app\"\n", "etc/passwd", "/etc/passwd"},
		}
		if w == asDocker { // elsewhere nothing needs it
			cases["sh"] = struct{ config, spoil, says string }{"", "bin/sh", "whose image needs /bin/sh"}
		}
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				k := newTask(t, w, plain+c.config, "", "", "")
				if c.spoil != "" {
					if err := os.Remove(k.path("environment/root/" + c.spoil)); err != nil {
						t.Fatal(err)
					}
				}
				out := k.evalrun(3, "run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task")
				if w == asDocker && (name == "user" || name == "database") { // the daemon has its own words
					c.says = "unable to find user "
				}
				if r := k.results(); r.Error == nil || !strings.Contains(r.Error.Message, c.says) {
					t.Errorf("%+v\n%s", r.Error, out)
				}
			})
		}
	})
}

// The agent has no network, and the tests have this machine's.
func TestNetworkOverAnImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		const interfaces = "lines=0; while read -r line; do lines=$((lines+1)); done </proc/net/dev"
		k := newTask(t, w, plain+"[agent]\nnetwork_mode = \"no-network\"\n", "", interfaces+"; echo $lines >/tmp/lines", interfaces+"; [ $(cat /tmp/lines) = 3 ]; [ $lines -ge 3 ]; [ -e /etc/resolv.conf ]")
		if w.bare() {
			k.evalrun(3, "run", "--isolation", k.isolation, "-o", "results.json", "--agent", "oracle", "task")
			if r := k.results(); r.Error == nil || r.Error.Category != string(fault.NotRunnable) || !strings.Contains(r.Error.Message, "no network of its own (bridge)") {
				t.Errorf("%+v", r.Error)
			}
			return
		}
		k.passes()
	})
}

// A verifier of its own has its own root, with the artifacts alone.
func TestSeparateVerifierOverAnImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain+"artifacts = [\"/tmp/given\"]\n[verifier]\nenvironment_mode = \"separate\"\n", "WORKDIR /app\n", "echo given >/tmp/given; echo no >/tmp/ambient; echo art >/logs/artifacts/art",
			"[ $(cat /tmp/given) = given ]; [ ! -e /tmp/ambient ]; [ $(cat /logs/artifacts/art) = art ]")
		k.passes()
	})
}

// A coding agent works in the image, is suspended, and gone on with by another process, which finds
// what it has left anywhere, folders that it has closed, or removed and made again, among it. Its own home is not among what the
// tests see. When the run is removed nothing of it is left.
func TestSuspendedOverAnImage(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		config := plain
		if w.bare() {
			config += "[agent]\nnetwork_mode = \"no-network\"\n[verifier]\nnetwork_mode = \"no-network\"\n"
		}
		k := newTask(t, w, config, "WORKDIR /app\nRUN [\"/bin/bash\", \"-c\", \"mkdir -p /made/again /made/empty; echo x >/made/again/old; echo x >/made/empty/old\"]\n", "", `[ "$(cat /opt/b)" = once ]; [ ! -e /bin/whoami ];
[ $(stat -c %a /made/empty) = 750 ]; [ ! -e /made/empty/old ]; [ $(stat -c %a /made/again) = 700 ]; [ ! -e /made/again/old ]; [ $(cat /made/again/new) = y ]; [ ! -e /home/evalrun/secret ]; `+hidden[w]+`
[ $(stat -c %a /opt/closed) = 0 ]; [ $(stat -c %a /opt/kept) = 555 ]; chmod 700 /opt/closed /opt/closed/in; [ "$(cat /opt/closed/in/f)" = x ]
mkdir -p /opt/left/in; echo y >/opt/left/in/f; chmod 0 /opt/left/in /opt/left`)
		k.write("instruction.md", `[[RUN echo once >>/opt/b; rm -r /bin/whoami /made/again /made/empty; mkdir -m 700 /made/again; mkdir -m 750 /made/empty; echo y >/made/again/new; echo $HOME >/tmp/home; echo s >$HOME/secret; mkdir -p /opt/kept/in /opt/closed/in; echo x >/opt/closed/in/f; chmod 0 /opt/closed/in/f /opt/closed/in /opt/closed; chmod 555 /opt/kept/in /opt/kept]]
[[ASK execute go {"n":1}]] [[SAY first]]
`)
		k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
		k.evalrun(75, "run", "--isolation", k.isolation, "--run-id", "r", "-o", "results.json", "--agent", "agent.json", "task")
		k.evalrun(0, "approve", k.trigger("r"))
		k.evalrun(0, "resume", "-o", "results.json", "r")
		if r := k.results(); r.Score == nil || *r.Score != 1 {
			t.Errorf("%+v\n%s", r, k.log())
		}
		k.evalrun(0, "rm", "r")
		for _, pattern := range []string{"work/*", "runs/*"} {
			if left, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun", pattern)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// hidden are the commands that show that an agent's installation is not there for the tests, or cannot be changed.
var hidden = map[way]string{asImage: "[ ! -e /run/evalrun/host ]", asPodman: "[ ! -e /run/evalrun/host ]", asUser: "[ ! -e /run/evalrun/host ]",
	asDocker: "! echo x 2>/dev/null >/run/evalrun/host/x"}

// trigger is the only one that a run waits for.
func (k *task) trigger(run string) string {
	k.t.Helper()
	var triggers []struct {
		ID string `json:"triggerId"`
	}
	out := k.evalrun(0, "triggers", "--json", run)
	if err := json.Unmarshal([]byte(out), &triggers); err != nil || len(triggers) != 1 {
		k.t.Fatalf("%v: %s", err, out)
	}
	return triggers[0].ID
}

// What the tests of a step leave, closed folders among it, is nothing to the next step and to the
// end of the run.
func TestClosedFoldersOfTests(t *testing.T) {
	inAll(t, func(t *testing.T, w way) {
		k := newTask(t, w, plain+"[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n", "", "", "")
		for _, step := range []string{"one", "two"} {
			k.write("steps/"+step+"/instruction.md", "Do it.\n")
			k.write("steps/"+step+"/solution/solve.sh", "set -e; [ ! -e /tests/closed ]; mkdir /logs/agent/closed; echo >/logs/agent/closed/f; chmod 0 /logs/agent/closed\n")
			k.write("steps/"+step+"/tests/test.sh", "set -e; echo 1 >/logs/verifier/reward.txt; for d in /tests /logs/verifier $HOME; do mkdir -p $d/closed/in; echo >$d/closed/in/f; chmod 555 $d/closed/in; chmod 0 $d/closed; done; chmod 700 $HOME/closed $HOME/closed/in; rm -r $HOME/closed /logs/agent/closed\n")
		}
		if err := errors.Join(os.RemoveAll(k.path("tests")), os.RemoveAll(k.path("solution")), os.RemoveAll(k.path("instruction.md"))); err != nil {
			t.Fatal(err)
		}
		k.passes()
		if left, _ := filepath.Glob(filepath.Join(k.dir, ".evalrun/work/*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
