package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/command"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/store"
)

// mayBeScored reports whether evaluators may run on a rollout: only in the state evaluating, so a
// suspended rollout is not scored. A rollout reaches that state when its agent has finished. It
// leaves it to end, or to wait for an evaluator; its agent never runs again. Both ways to the
// evaluators call mayBeScored: the commit of a segment, and the claim of a rollout that lacks only
// results.
func mayBeScored(state eval.State) bool { return state == eval.StateEvaluating }

// isCode reports whether an evaluator is code of the user's, which may take long and read the workspace.
func isCode(def eval.Definition) bool { return def.Type == command.Type || python.Is(def) }

// evaluate runs the evaluators that have no result yet. Then it ends the rollout, or makes it wait
// for the evaluators that wait. If ctx is done in between, the rollout keeps the results that it
// has, and its next holder goes on with the others. files are the files of the segment that has
// just ended, if it was run here.
func (r *Rollout) evaluate(ctx context.Context, output json.RawMessage, files []store.File) error {
	commit := context.WithoutCancel(ctx)
	s := &scoring{held: r.held, files: files}
	if err := s.readResults(); err != nil {
		return err
	}
	if r.held.entry.Needs().Sandbox {
		if err := r.held.joinTrajectory(commit); err != nil {
			return err
		}
	}
	segments, err := s.segments(commit)
	if err != nil {
		return err
	}
	subject, err := r.held.subject(segments, output)
	if err != nil {
		return err
	}
	if run := r.held.run; run.Judges != nil && run.Plan.Judges.Batch.Enabled {
		s.judge = run.Judges.InBatches(r.held.claim.Agent, r.held.judgeDir(), r.held.claim.RolloutID, s.deliveries)
		subject.Judge = s.judge
	}
	err = s.runEvaluators(ctx, subject)
	if err == nil && r.held.cameFromElsewhere() {
		err = r.held.host.Store.MoveKept(commit, r.held.claim.Token)
	}
	var f *fault.Fault
	switch {
	case errors.As(err, &f) && f.Category == fault.Unresumable && r.held.cameFromElsewhere():
		return r.postpone(commit, f.Message) // where its agent ended is the image
	case errors.As(err, &f):
		return r.endUnverified(commit, f)
	case err != nil:
		return err
	case s.brokenOff:
		return r.held.host.Store.Release(commit, r.held.claim.Token, 0)
	}
	if len(s.waits)+len(r.held.claim.Waiting) > 0 {
		return r.waitForScores(commit, s)
	}
	failpoint.Hit("rollout.finishing")
	if err := r.held.host.Store.Finish(commit, r.held.claim.Token,
		summary.RolloutScore(r.held.run.Plan.Set.Evaluators, s.results), s.last...); err != nil {
		return err
	}
	r.state = eval.StateCompleted
	failpoint.Hit("rollout.finished")
	return verifierCopy{r.held}.removeUnlessKept()
}

// endUnverified ends a rollout whose verifier left no reward as faulted. It gets no score, not even
// 0, so that nothing passes or fails in silence.
func (r *Rollout) endUnverified(ctx context.Context, f *fault.Fault) error {
	message := r.held.run.Redact.String(f.Message)
	if err := r.held.host.Store.FinishFaulted(ctx, r.held.claim.Token,
		fault.Fault{Category: f.Category, Message: message}); err != nil {
		return err
	}
	r.state = eval.StateFaulted
	return verifierCopy{r.held}.removeUnlessKept()
}

// scoring is the evaluation of a rollout whose agent has finished.
type scoring struct {
	held *held
	// files are the files of the segment that has just ended; nil if it was not run here.
	files []store.File
	// results holds the results of all evaluators so far, those before this claim included. done
	// holds the ids of these evaluators.
	results []eval.Result
	done    map[string]bool
	// last holds the results that are stored when the rollout ends or waits.
	last []store.Result
	// judge asks in batches; nil if no question goes to a batch.
	judge *judge.Batched
	// waits lists what evaluators have begun to wait for.
	waits []evaluatorWait
	// brokenOff says that the process was to end before all evaluators had run.
	brokenOff bool
}

// readResults reads the results that an earlier holder has stored.
func (s *scoring) readResults() error {
	s.done = map[string]bool{}
	for _, r := range s.held.claim.Results {
		var results []eval.Result
		if err := json.Unmarshal(r.Data, &results); err != nil {
			return fmt.Errorf("evaluator %s: %w", r.EvaluatorID, err)
		}
		s.results = append(s.results, results...)
		s.done[r.EvaluatorID] = true
	}
	return nil
}

// runEvaluators runs the evaluators without a result. A result is stored before the next evaluator
// runs if it would cost something to get it again. Results that are only computed are stored
// together with the rollout's end.
func (s *scoring) runEvaluators(ctx context.Context, subject eval.Subject) error {
	run := s.held.run
	for _, i := range evaluatorOrder(run.Plan.Set.Evaluators) {
		e, def := run.Evaluators[i], run.Plan.Set.Evaluators[i]
		subject.Results = s.results
		if s.done[def.ID] || slices.Contains(s.held.claim.Waiting, def.ID) {
			continue
		}
		var verdict eval.Verdict
		var err error
		if def.Type != eval.TypeVerifier {
			verdict = run.ask(ctx, e, subject, s.deliveries(def.ID))
		} else if verdict.Results, err = s.verify(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			s.brokenOff = true
			return nil
		}
		if verdict.Wait != nil {
			verdict.Results = s.wait(def, verdict.Wait)
		}
		if verdict.Later {
			s.waits = append(s.waits, evaluatorWait{evaluatorID: def.ID, requests: s.judge.Requests(def.ID)})
		}
		if len(verdict.Results) == 0 {
			continue // the evaluator waits, or the evaluation does not ask for it
		}
		if err := s.keep(ctx, def, verdict.Results); err != nil {
			return err
		}
	}
	return nil
}

// evaluatorOrder returns the order of the plan, with people last, since they may see the results of
// the others.
func evaluatorOrder(defs []eval.Definition) (order []int) {
	var people []int
	for i, def := range defs {
		if def.Type == judged.TypeHuman {
			people = append(people, i)
		} else {
			order = append(order, i)
		}
	}
	return append(order, people...)
}

// keep stores the results of an evaluator, or notes them for the rollout's end.
func (s *scoring) keep(ctx context.Context, def eval.Definition, results []eval.Result) error {
	s.results = append(s.results, results...)
	data, err := jsonobj.Marshal(results)
	if err != nil {
		return fmt.Errorf("evaluator %s: %w", def.ID, err)
	}
	result := store.Result{EvaluatorID: def.ID, Data: s.held.run.Redact.JSON(data)}
	if !isCode(def) && def.Type != eval.TypeVerifier && !kinds.All.AsksModels(def) {
		s.last = append(s.last, result)
		return nil
	}
	if err := s.held.host.Store.RecordResult(context.WithoutCancel(ctx), s.held.claim.Token, result); err != nil {
		return err
	}
	failpoint.Hit("rollout.evaluated")
	return nil
}

// segments returns the rollout's segments. Most rollouts have only the one that has just ended.
func (s *scoring) segments(ctx context.Context) ([]store.Segment, error) {
	if c := s.held.claim; c.State == eval.StateRunning && c.Segment == 1 && !s.held.hasChecks() {
		return []store.Segment{{Number: 1, Attempt: c.Attempt, Outcome: store.OutcomeCompleted, Files: s.files}}, nil
	}
	return s.held.host.Store.Segments(ctx, s.held.claim.RolloutID)
}
