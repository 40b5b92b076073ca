package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// evaluatorCommand is the type of the evaluators that are programs.
const evaluatorCommand = "command"

// defaultEvaluatorTimeout holds where limits.evaluatorTimeout is not given.
const defaultEvaluatorTimeout = 5 * time.Minute

// evaluate runs the evaluators that have no result yet and ends the rollout. If ctx is done in between the rollout keeps the
// results that it has, and whoever claims it next goes on with the others.
func (w *worker) evaluate(ctx context.Context, output json.RawMessage) error {
	commit := context.WithoutCancel(ctx)
	var all []eval.Result
	done := map[string]bool{}
	for _, r := range w.claim.Results {
		var results []eval.Result
		if err := json.Unmarshal(r.Data, &results); err != nil {
			return fmt.Errorf("evaluator %s: %w", r.EvaluatorID, err)
		}
		all = append(all, results...)
		done[r.EvaluatorID] = true
	}
	if w.entry.LivesInEnvironment() {
		if err := w.joinTrajectory(commit); err != nil {
			return err
		}
	}
	subject, err := w.subject(commit, output)
	if err != nil {
		return err
	}
	// What an evaluator said is stored before the next one runs if running it again would cost something. The others, which only compute,
	// are stored together with the rollout's end.
	var last []store.Result
	for i, e := range w.plan.evaluators {
		def := w.plan.Set.Evaluators[i]
		if done[def.ID] {
			continue
		}
		var results []eval.Result
		if def.Type != eval.TypeVerifier {
			results = w.score(ctx, e, subject)
		} else if results, err = w.verify(ctx); err != nil && ctx.Err() == nil {
			return w.unverified(commit, err)
		}
		if ctx.Err() != nil {
			return w.o.Store.GiveBack(commit, w.claim.Token, 0)
		}
		if len(results) == 0 {
			continue // the evaluation does not ask for it
		}
		all = append(all, results...)
		data, err := json.Marshal(results)
		if err != nil {
			return fmt.Errorf("evaluator %s: %w", def.ID, err)
		}
		result := store.Result{EvaluatorID: def.ID, Data: w.plan.redact.JSON(data)}
		if def.Type != evaluatorCommand && def.Type != eval.TypeVerifier {
			last = append(last, result)
			continue
		}
		if err := w.o.Store.RecordResult(commit, w.claim.Token, result); err != nil {
			return err
		}
		failpoint.Hit("runner.evaluated")
	}
	failpoint.Hit("runner.finishing")
	if err := w.o.Store.Finish(commit, w.claim.Token, eval.RolloutScore(w.plan.Set.Evaluators, all), last...); err != nil {
		return err
	}
	w.state = store.StateCompleted
	failpoint.Hit("runner.finished")
	return os.RemoveAll(w.verified())
}

func (w *worker) score(ctx context.Context, e eval.Evaluator, s eval.Subject) []eval.Result {
	limit := w.plan.Set.Limits.EvaluatorTimeout
	if limit == 0 {
		limit = defaultEvaluatorTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return e.Evaluate(ctx, s)
}

// unverified ends a rollout whose verifier left no reward: it has no score, not even 0.
func (w *worker) unverified(ctx context.Context, err error) error {
	var f *fault.Fault
	if !errors.As(err, &f) {
		return err
	}
	if err := w.o.Store.FinishFaulted(ctx, w.claim.Token, fault.Fault{Category: f.Category, Message: w.plan.redact.String(f.Message)}); err != nil {
		return err
	}
	w.state = store.StateFaulted
	return os.RemoveAll(w.verified())
}

// subject is what the evaluators see of the rollout.
func (w *worker) subject(ctx context.Context, output json.RawMessage) (eval.Subject, error) {
	c := w.claim
	s := eval.Subject{
		RolloutID: c.RolloutID, Agent: c.Agent, Epoch: c.Epoch, Output: output, Evaluation: w.evaluation,
		Dir: w.plan.baseDir, Workspace: w.workspace(), Env: sandbox.Environ(nil),
	}
	segments, err := w.segments(ctx)
	if err != nil {
		return s, err
	}
	for _, g := range segments {
		if g.Outcome != store.OutcomeCompleted && g.Outcome != store.OutcomeSuspended {
			continue
		}
		var segment []json.RawMessage
		for _, dir := range TraceDirs(workspace.SegmentDir(w.o.Store.Dir(), c.RunID, c.RolloutID, g.Number, g.Attempt), g.Files) {
			spans, skipped, err := agent.ReadTrace(dir)
			if err != nil {
				return s, err
			}
			if skipped > 0 {
				w.o.Logger.Warn("lines of the trace are not JSON objects and were left out", "rollout", c.RolloutID, "lines", skipped)
			}
			segment = append(segment, spans...)
		}
		s.Trace = append(s.Trace, segment)
	}
	return s, nil
}

// segments are the rollout's segments. Most rollouts have only the one that has just ended.
func (w *worker) segments(ctx context.Context) ([]store.Segment, error) {
	if c := w.claim; c.State == store.StateRunning && c.Segment == 1 {
		return []store.Segment{{Number: 1, Attempt: c.Attempt, Outcome: store.OutcomeCompleted, Files: w.files}}, nil
	}
	return w.o.Store.Segments(ctx, w.claim.RolloutID)
}
