package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// toldBy is a target that writes what it is told into a file, one message a line, and the file's
// messages.
func toldBy(t *testing.T) (runner.Notifications, func() []message) {
	dir := t.TempDir()
	target := notify.Target{Command: []string{"sh", "-c", "cat >>told"}, Events: []notify.Kind{notify.Suspended, notify.Question, notify.Finished}, Timeout: wait.Duration(10 * time.Second)}
	return runner.Notifications{Targets: notify.Targets{target}, Dir: dir}, func() (all []message) {
		data, err := os.ReadFile(filepath.Join(dir, "told"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var m message
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				return nil // it is being written
			}
			all = append(all, m)
		}
		return all
	}
}

type message struct {
	ID, Type, Source, Subject string
	Data                      struct {
		RunID, RolloutID, EvaluationName, Status, Verdict string
		Summary                                           struct{ Total int }
		Triggers                                          []struct{ TriggerID string }
		Trigger                                           struct{ TriggerID, AskedBy, Type string }
		Payload                                           json.RawMessage
		Rescoring                                         schemas.RunRescored
	}
}

func typesOf(all []message) (out []string) {
	for _, m := range all {
		out = append(out, strings.TrimPrefix(m.Type, "io.github.evalrun."))
	}
	return out
}

// A service's targets are told of every run of the store, also of one that another process works
// on.
func TestAServiceIsToldOfAllRuns(t *testing.T) {
	path := evalSet(true)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
	st, _ := begin(path)
	t.Cleanup(func() { check(st.Close()) })
	targets, told := toldBy(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- st.Notify(ctx, runner.Options{Notifications: targets}) }()
	set, err := runner.Load([]string{path}, runner.LoadOptions{Command: []string{os.Args[0], "agent"}})
	check(err)
	var run runner.Created
	if !testenv.Eventually(func() bool { // the first that is made after the target is known
		run, err = st.Create(t.Context(), set, runner.CreateOptions{})
		check(err)
		_, err = st.Run(t.Context(), run.RunID, runner.RunOptions{})
		check(err)
		return len(told()) > 0
	}) {
		t.Fatal("nobody was told")
	}
	if got := told()[0]; got.Type != notify.TypeSuspended || got.Data.RunID == "" || !strings.HasSuffix(got.Source, "/runs/"+got.Data.RunID) ||
		got.Subject != got.Data.RolloutID || len(got.Data.Triggers) != 1 {
		t.Errorf("got %+v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What the job of a trigger asks a person is told, and so is the end of the run.
func TestAQuestionIsTold(t *testing.T) {
	st, err := runner.Open(t.TempDir(), runner.OpenOptions{})
	check(err)
	t.Cleanup(func() { check(st.Close()) })
	targets, told := toldBy(t)
	ctx := t.Context()
	s, runID := st.Internal(), store.NewRunID()
	check(s.AddTargets(ctx, targets.Targets.ForStore(), time.Hour))
	rollout := store.RolloutID(runID, "e", "a", 1)
	_, err = s.CreateRun(ctx, store.Plan{RunID: runID, EvaluationSetID: "s", Data: json.RawMessage(`{}`), Evaluations: []store.Evaluation{{ID: "e", Data: json.RawMessage(`{}`)}},
		Rollouts: []store.PlannedRollout{{ID: rollout, EvaluationName: "E", Agent: "a", Epoch: 1}}})
	check(err)
	claims, err := s.Claim(ctx, runID, 1)
	check(err)
	_, err = s.CommitSegment(ctx, claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{
		{InterruptID: "i", Type: "JOB", Name: "JOB", Source: "http", ItemKey: "k", Checked: true, Spec: json.RawMessage(`{}`)}}})
	check(err)
	due, err := s.ClaimTriggers(ctx, runID, 1)
	check(err)
	spec := json.RawMessage(`{"type":"TASK","payload":{"title":"May I?"}}`)
	check(s.Ask(ctx, due[0].TriggerToken, store.NewTrigger{Type: "TASK", Name: "TASK", Source: "external", KeyPrefix: "task-", Spec: spec, Digest: "d"}, store.Never))
	_, err = s.Cancel(ctx, runID)
	check(err)
	check(st.Execute(ctx, runner.ExecuteOptions{Once: true, Options: runner.Options{Notifications: targets}}))
	all := told()
	if got := typesOf(all); !slices.Equal(got, []string{"rollout.suspended", "question.asked", "run.finished"}) {
		t.Fatalf("got %q", got)
	}
	if q := all[1].Data; q.Trigger.AskedBy != due[0].TriggerID || q.Trigger.Type != "TASK" || string(q.Payload) != `{"title":"May I?"}` || q.EvaluationName != "E" {
		t.Errorf("asked: %+v", q)
	}
	if end := all[2].Data; end.Status != "cancelled" || end.Verdict != "faulted" || end.Summary.Total != 1 {
		t.Errorf("finished: %+v", end)
	}
	if left, err := st.Undelivered(ctx, runID); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}

func TestATargetWithoutItsSecret(t *testing.T) {
	st, err := runner.Open(t.TempDir(), runner.OpenOptions{})
	check(err)
	t.Cleanup(func() { check(st.Close()) })
	targets := runner.Notifications{Targets: notify.Targets{{URL: "https://h.example/", Secret: "${NO_SUCH_SECRET}", Events: []notify.Kind{notify.Finished}}}}
	err = st.Execute(t.Context(), runner.ExecuteOptions{Options: runner.Options{Notifications: targets}})
	if wrong := (*runner.InputError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "${NO_SUCH_SECRET}") {
		t.Errorf("got %v", err)
	}
}

// A target of an eval set that asks for it is told that a run was scored again, and what it has come
// to; one that does not ask is not.
func TestARescoringIsTold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "evalset.json")
	check(os.WriteFile(path, []byte(`{"version": "1.0", "id": "told", "name": "Told",
		"notify": [{"command": ["sh", "-c", "cat >>rescored"], "events": ["rescored"]}, {"command": ["sh", "-c", "cat >>finished"], "events": ["finished"]}],
		"evaluators": [{"id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {}}],
		"evaluations": [{"id": "a", "name": "A", "inputs": {"a": 1, "b": 2}, "evaluationCriterias": {"exact": {"expectedOutput": {"sum": 3}}}}]}`), 0o600))
	st, run := begin(path)
	defer st.Close()
	_, err := st.Run(t.Context(), run.RunID, runner.RunOptions{})
	check(err)
	scored, err := st.Score(t.Context(), run.RunID, runner.ScoreOptions{})
	check(err)
	read := func(name string) (m message) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		check(err)
		check(json.Unmarshal(data, &m)) // which fails if there are several
		return m
	}
	got := read("rescored")
	if got.Type != notify.TypeRescored || got.Data.RunID != run.RunID || got.Data.Verdict != scored.Verdict.String() || got.Data.Summary.Total != 1 ||
		got.Data.Rescoring != (schemas.RunRescored{Number: 1, Scored: 1}) {
		t.Errorf("got %+v", got)
	}
	if end := read("finished"); end.Type != notify.TypeFinished {
		t.Errorf("got %+v", end)
	}
}
