package rollout

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/oracle"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

func TestMain(m *testing.M) {
	sandbox.InitMain()
	os.Exit(m.Run())
}

// newTaskWorld is a world whose rollout is one of a task that the agent nop leaves as it is. The
// script is the task's test, lines are added to its task.toml.
func newTaskWorld(t *testing.T, script string, lines ...string) *world {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	w := newWorld(t, "", func(req *plans.Request) {
		dir := filepath.Join(req.BaseDir, "task")
		for name, text := range map[string]string{
			"task.toml": "[task]\nname = \"test/task\"\n" + strings.Join(lines, "\n"), "instruction.md": "Do nothing.\n", "tests/test.sh": "#!/bin/bash\n" + script + "\n",
		} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		digest, err := tasks.Digest(dir)
		if err != nil {
			t.Fatal(err)
		}
		req.Isolation = sandbox.IsolationProcess
		req.Agents = []agent.Entry{{Name: "nop", Type: oracle.NopName}}
		req.Set.Evaluators = []eval.Definition{eval.Verifier}
		req.Set.Evaluations[0].Task = &eval.Task{Dir: "task", Digest: digest}
	})
	executable, err := os.Executable()
	w.check(err)
	w.host.Executable = executable
	return w
}

// The reward that a task's test leaves is the rollout's score.
func TestARewardIsTheScore(t *testing.T) {
	w := newTaskWorld(t, `echo 0.25 > "$EVALRUN_LOGS_DIR/verifier/reward.txt"; echo said`)
	w.run()
	o := w.view()
	if o.State != eval.StateCompleted || o.Score == nil || *o.Score != 0.25 {
		t.Fatalf("it is %s with score %v and fault %v", o.State, o.Score, o.Fault)
	}
	var results []eval.Result
	w.check(json.Unmarshal(o.Results[0].Data, &results))
	if len(results) != 1 || results[0].EvaluatorID != eval.Verifier.ID {
		t.Errorf("the results are %+v", results)
	}
	log := filepath.Join(w.store.Dir(), "runs", w.runID, "rollouts", o.ID, "verifier", record.VerifierLog)
	if data, err := os.ReadFile(log); err != nil || string(data) != "said\n" {
		t.Errorf("the verifier's log is %q, %v", data, err)
	}
}

// The rule of endUnverified. A verifier that leaves no reward makes no score, not even 0, whether
// it ends well or not.
func TestAVerifierWithoutARewardIsAFault(t *testing.T) {
	for name, script := range map[string]string{"it ends well": "true", "it fails": "exit 3"} {
		t.Run(name, func(t *testing.T) {
			w := newTaskWorld(t, script)
			w.run()
			o := w.view()
			if o.State != eval.StateFaulted || o.Score != nil || len(o.Results) != 0 || o.Fault.Category != fault.Verifier || !strings.Contains(o.Fault.Message, record.VerifierLog) {
				t.Errorf("it is %s with score %v, results %v and fault %v", o.State, o.Score, o.Results, o.Fault)
			}
		})
	}
}

// A verifier that was ended in the middle is repeated on what the agent has left, not on what it
// has made of that.
func TestAVerifierIsRepeatedOnWhatTheAgentLeft(t *testing.T) {
	w := newTaskWorld(t, "")
	r := w.claim()
	w.check(r.held.load(t.Context()))
	file := filepath.Join(r.held.workspace(), "file")
	w.check(errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("the agent's"), 0o600)))
	w.check(verifierCopy{r.held}.restore())
	w.check(os.WriteFile(file, []byte("spoiled"), 0o600)) // by a verifier that is ended now
	w.check(verifierCopy{r.held}.restore())
	if data, err := os.ReadFile(file); err != nil || string(data) != "the agent's" {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// A task directory that has changed since the run was planned is not run.
func TestAChangedTaskIsNotRun(t *testing.T) {
	w := newTaskWorld(t, "true")
	w.check(os.WriteFile(filepath.Join(w.dir, "task", "tests", "test.sh"), []byte("echo other"), 0o600))
	w.run()
	if o := w.view(); o.State != eval.StateFaulted || o.Fault.Category != fault.Setup || !strings.Contains(o.Fault.Message, "not what it was") {
		t.Errorf("it is %s with %v", o.State, o.Fault)
	}
}

// A stored plan may say that a task runs without its image. Its score would mean nothing.
func TestATaskIsNotRunWithoutItsImage(t *testing.T) {
	w := newTaskWorld(t, "true", "[environment]", "docker_image = 'debian:12'")
	w.run()
	o := w.view()
	if o.State != eval.StateFaulted || o.Fault.Category != fault.Setup || !strings.Contains(o.Fault.Message, "without its image") {
		t.Errorf("it is %s with %v", o.State, o.Fault)
	}
}
