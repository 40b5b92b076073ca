package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// asking are the evaluations of an agent that asks for permission, by their ids, with the
// beginnings of all the prompts that it must have got in the end, each once: what one segment was
// told no other may be told again.
var asking = map[string][]string{
	"says":      {"[[RUN", "You asked for permission: Go"},
	"both":      {"[[ASK", "You asked for permission: One"},
	"never":     {"[[SAY"},
	"task":      {"[[RUN", "You asked for permission: Go"},
	"two-steps": {"[[RUN echo one", "[[RUN echo two", "You asked for permission: Go"},
}

// oneSession is a test script's look at what the agent keeps in its home, where that can be seen:
// one session of as many turns.
const oneSession = `
one_session() {
	home=$EVALRUN_APP_DIR/../home/.acp-agent/sessions
	[ ! -d "$home" ] || [ "$(ls "$home" | wc -l) $(cat "$home"/*.json | grep -o '"prompt":' | wc -l)" = "$1 $2" ]
}
`

// newApprovedScenario makes a scenario of ACP agents and tasks. What they will ask for has been
// approved before they begin.
func newApprovedScenario(t *testing.T, isolation string) *scenario {
	t.Helper()
	s := newAskingScenario(t)
	s.flags = []string{"--isolation", isolation}
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range rehearsal(t) {
		id := store.TriggerID(store.RolloutID(runID, asked.EvaluationID, "asks", 1), asked.InterruptID, 0, 0)
		receipt, err := st.Deliver(t.Context(), store.Delivery{TriggerID: id, Status: store.StatusSuccessful, Payload: json.RawMessage(`{"approved":true}`), By: "test"})
		if err != nil || receipt.Disposition != store.Parked {
			t.Fatal(receipt, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// newAskingScenario makes it without the approvals.
func newAskingScenario(t *testing.T) *scenario {
	s := emptyScenario(t, "failpoint")
	s.total, s.results, s.asks = len(asking), 1, true
	program, err := acpAgent()
	if err != nil {
		t.Fatal(err)
	}
	says := func(id, prompt, text string) map[string]any {
		return map[string]any{"id": id, "name": id, "inputs": map[string]any{"prompt": prompt}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": text}}}
	}
	s.write("set.json", map[string]any{
		"version": "1.0", "id": "crash", "name": "Crash", "tasks": []string{"tasks/*"},
		"agent":      map[string]any{"type": "acp", "name": "asks", "command": []string{program}, "permissions": "suspend"},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says"}}},
		"evaluations": []any{
			says("says", `[[RUN echo begun >>log]][[ASK execute Go {"n": 1}]]`, "I received"),
			says("both", `[[ASK execute One {"n": 1}]][[ASK execute Two {"n": 2}]]`, "I received"),
			says("never", `[[SAY hello]]`, "hello"),
		},
	})
	for name, text := range map[string]string{
		"task/task.toml":                       "[verifier]\ntimeout_sec = 30\n",
		"task/instruction.md":                  `[[RUN echo begun >>log]][[ASK execute Go {"n": 3}]]`,
		"task/tests/test.sh":                   oneSession + `one_session 1 2 && [ "$(cat log)" = begun ] && echo 1 >"$EVALRUN_LOGS_DIR/verifier/reward.txt"`,
		"two-steps/task.toml":                  "[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n",
		"two-steps/steps/one/instruction.md":   `[[RUN echo one >>log]]`,
		"two-steps/steps/one/tests/test.sh":    `echo verified >>log; [ "$(cat log)" = "$(printf 'one\nverified')" ] && echo 1 >"$EVALRUN_LOGS_DIR/verifier/reward.txt"`,
		"two-steps/steps/two/instruction.md":   `[[RUN echo two >>log]][[ASK execute Go {"n": 4}]]`,
		"two-steps/steps/two/tests/test.sh":    oneSession + `one_session 2 3 && [ "$(cat log)" = "$(printf 'one\nverified\ntwo')" ] && echo 1 >"$EVALRUN_LOGS_DIR/verifier/reward.txt"`,
		"two-steps/environment/from-the-task":  "x",
		"two-steps/steps/two/workdir/for-this": "x",
	} {
		path := filepath.Join(s.dir, "tasks", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// acpAgent builds the scripted agent of the fixtures once.
var acpAgent = fixture("acp-agent")

// fixture gives what builds a program of the fixtures, once.
func fixture(path string) func() (program string, err error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "evalrun-crash")
		if err != nil {
			return "", err
		}
		return filepath.Join(dir, filepath.Base(path)), testenv.Build(dir, "github.com/evalrun/evalrun/fixtures/"+path)
	})
}

// askedFor is what a rollout asks for, under the id that the runner gives it.
type askedFor struct {
	EvaluationID string `json:"evaluationId"`
	InterruptID  string `json:"interruptId"`
}

var rehearsed struct {
	sync.Once
	asked []askedFor
}

// rehearsal lets the agents ask once, and says for what: the ids are the same in every run.
func rehearsal(t *testing.T) []askedFor {
	rehearsed.Do(func() {
		s := newAskingScenario(t)
		cmd := s.command()
		cmd.Args = []string{s.program, "run", "--isolation", sandbox.IsolationProcess, "--run-id", runID, "set.json"}
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 75 {
			t.Fatalf("%v\n%s", err, out)
		}
		_, out := s.evalrun("triggers", "--json")
		if err := json.Unmarshal([]byte(out), &rehearsed.asked); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	if len(rehearsed.asked) != 5 {
		t.Fatalf("asked for %v, expected five things", rehearsed.asked)
	}
	return rehearsed.asked
}

// isolations are those that there are here.
func isolations() []string {
	if sandbox.Available() != nil {
		return []string{sandbox.IsolationProcess}
	}
	return []string{sandbox.IsolationProcess, sandbox.IsolationBwrap}
}

// checkPrompts compares the trajectory of a rollout with what its agent must have been told.
func (s *scenario) checkPrompts(o store.RolloutView, note func(string, ...any)) {
	path := filepath.Join(s.dir, ".evalrun", "runs", runID, "rollouts", o.ID, record.FileTrajectory)
	data, err := os.ReadFile(path)
	if err != nil {
		note("%v", err)
		return
	}
	var got []string
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var e record.Event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			note("%s: %v", path, err)
			return
		}
		if e.Type != record.EventPrompt {
			continue
		}
		for _, beginning := range asking[o.EvaluationID] {
			if strings.HasPrefix(e.Text, beginning) {
				e.Text = beginning
			}
		}
		got = append(got, e.Text)
	}
	if diff := cmp.Diff(asking[o.EvaluationID], got); diff != "" {
		note("the prompts of %s: %s", o.EvaluationName, diff)
	}
}

// checkProcesses looks for processes that the scenario has left: its folder is in the environment
// of all of them. Those that were just killed get a moment.
func (s *scenario) checkProcesses(note func(string, ...any)) {
	var left map[int]string
	if !testenv.Eventually(func() bool {
		left = testenv.Processes(s.dir)
		return len(left) == 0
	}) {
		note("processes are left: %v", left)
	}
}

// TestStoppedBeforeItsAgent stops a process that has claimed a rollout and done nothing for it yet.
// Another one runs it to its end. When the first goes on it must not prepare what it has claimed,
// because that would empty what the rollout has left since.
func TestStoppedBeforeItsAgent(t *testing.T) {
	testenv.NeedLong(t)
	s := newApprovedScenario(t, sandbox.IsolationProcess)
	s.flags = append(s.flags, "--keep-workspaces", "--eval-id", "task") // alone: of several rollouts some would be stopped in the middle of preparing theirs
	s.total = 1
	s.overtake("rollout.claimed")
	for _, wrong := range s.violations() {
		t.Error(wrong)
	}
	if logs, err := filepath.Glob(filepath.Join(s.dir, "state", "evalrun", "*", "*", "workspace", "log")); err != nil || len(logs) != 1 {
		t.Errorf("the workspace has lost what the agent wrote: %v, %v", logs, err)
	}
}
