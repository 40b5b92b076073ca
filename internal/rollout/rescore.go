package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// Rescoring asks evaluators about completed rollouts again. It needs no lease, since it changes
// nothing but the files of a task's verifier, and stores nothing itself.
type Rescoring struct {
	// Host needs no LoadRun, Syncer or Lease here.
	Host *Host
	// Number is the number of the rescoring in the store.
	Number int
	// Keeps reports whether the earlier results of an evaluator for a rollout are kept, so that the
	// evaluator is not asked.
	Keeps func(one *store.Rescorable, def eval.Definition, earlier Earlier) bool
	// Same reports whether earlier results come from the same definition.
	Same func(def eval.Definition, earlier Earlier) bool
	// WithoutWorkspaces asks evaluators that may read the workspace even if it is gone.
	WithoutWorkspaces bool

	run *Run
}

// Earlier holds the earlier results of an evaluator for a rollout.
type Earlier struct {
	store.Result
	Results []eval.Result
}

// Failed reports whether the evaluator gave no result, or was not run.
func (e Earlier) Failed() bool {
	for _, r := range e.Results {
		if r.Failed() || r.NotRun != "" {
			return true
		}
	}
	return false
}

// Prepare makes the evaluators of a plan, whose eval set is in dir. judges may be nil.
func (r *Rescoring) Prepare(plan plans.Plan, dir string, judges *judge.Judges, red *redact.Redactor) (err error) {
	r.run = &Run{Plan: plan, Dir: dir, Judges: judges, Redact: red, python: evaluatorWorkers(plan)}
	r.run.Evaluators, err = newEvaluators(plan)
	return err
}

// Close ends what Prepare has made.
func (r *Rescoring) Close() error { return r.run.python.Close() }

// unscored says why a rollout is not scored again.
type unscored struct{ reason string }

func (u unscored) Error() string { return u.reason }

// Score returns what the evaluators say of a rollout now. A problem with the rollout is a reason
// not to score it; an error means that ctx is done.
func (r *Rescoring) Score(ctx context.Context, one *store.Rescorable) (out store.Rescored, err error) {
	out.RolloutID = one.ID
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("evalrun failed with it: %v", p)
		}
		if err != nil && ctx.Err() != nil {
			out, err = store.Rescored{}, ctx.Err()
		} else if err != nil {
			out, err = store.Rescored{RolloutID: one.ID, Unscored: r.run.Redact.String(err.Error())}, nil
		}
	}()
	h := &held{host: r.Host, run: r.run, rescoring: r.Number, claim: store.Claim{
		Token: store.Token{RolloutID: one.ID}, Rollout: one.Rollout, Evaluation: one.Evaluation, Results: one.Results}}
	if err := h.find(); err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, h.end(context.WithoutCancel(ctx))) }()
	if r.Host.Store.Files() != "" {
		if h.kept, err = r.Host.Store.Kept(ctx, one.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return out, err
		}
		if machine := h.filesElsewhere(); machine != "" {
			return out, unscored{h.areElsewhere(machine)}
		}
	}
	subject, err := h.subject(one.Segments, outputOf(one.Segments))
	if err != nil {
		return out, err
	}
	_, missing := os.Stat(subject.Workspace)
	if missing != nil {
		subject.Workspace = ""
	}
	all := []eval.Result{}
	for i, def := range r.run.Plan.Set.Evaluators {
		earlier, there, err := earlierOf(one.Results, def.ID)
		if err != nil {
			return out, err
		}
		if there && r.Keeps(one, def, earlier) {
			out.Results, all = append(out.Results, earlier.Result), append(all, earlier.Results...)
			continue
		}
		if isCode(def) && missing != nil && !r.WithoutWorkspaces {
			if _, asks := h.evaluation.Criteria[def.ID]; asks {
				return out, unscored{fmt.Sprintf(
					"its workspace was not kept, and the evaluator %s may read it; --keep-workspaces keeps those of a run, --without-workspaces asks the evaluator all the same",
					def.ID)}
			}
		}
		results, kept, err := r.ask(ctx, h, i, subject, earlier, there)
		switch {
		case err != nil:
			return out, err
		case ctx.Err() != nil:
			return out, ctx.Err()
		case kept:
			out.Results = append(out.Results, earlier.Result)
		case len(results) == 0:
			continue // the evaluation does not ask for it
		default:
			data, err := jsonv1.Marshal(results)
			if err != nil {
				return out, err
			}
			out.Results = append(out.Results, store.Result{EvaluatorID: def.ID, Data: r.run.Redact.JSON(data),
				Rescoring: r.Number})
		}
		all = append(all, results...)
	}
	out.Score = summary.RolloutScore(r.run.Plan.Set.Evaluators, all)
	return out, nil
}

// ask asks one evaluator. People and jobs are not asked a second time: if an evaluator would wait,
// its earlier results are kept.
func (r *Rescoring) ask(ctx context.Context, h *held, i int, subject eval.Subject, earlier Earlier,
	there bool) (results []eval.Result, kept bool, err error) {
	def := r.run.Plan.Set.Evaluators[i]
	there = there && r.Same(def, earlier)
	if def.Type == eval.TypeVerifier {
		return r.verify(ctx, h, earlier, there)
	}
	v := r.run.ask(ctx, r.run.Evaluators[i], subject, nil)
	switch {
	case v.Wait == nil:
		return v.Results, false, nil
	case there && !earlier.Failed():
		return earlier.Results, true, nil
	}
	return nil, false, unscored{fmt.Sprintf("the evaluator %s waits for a person or a job, which scoring again does not",
		def.ID)}
}

// verify runs a task's verifier again on the files that the agent has left. The verifiers of steps
// cannot be run again, since the files that they saw are gone.
func (r *Rescoring) verify(ctx context.Context, h *held, earlier Earlier, there bool) (
	results []eval.Result, kept bool, err error) {
	if h.evaluation.Task == nil {
		return nil, false, nil
	}
	spec, err := h.newSandboxSpec(ctx, false)
	if err != nil {
		return nil, false, reasonOf(err)
	}
	spec.release()
	if spec.task.Stages()[0].Name != "" && there {
		return earlier.Results, true, nil
	}
	if !(verifierCopy{h}).exists() {
		return nil, false, unscored{
			"what its agent has left was not kept, so that the verifier has nothing to look at; --keep-workspaces keeps it"}
	}
	results, err = (&scoring{held: h}).verify(ctx)
	return results, false, reasonOf(err)
}

// reasonOf returns the message of a fault without its category.
func reasonOf(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return unscored{f.Message}
	}
	return err
}

// earlierOf finds the results of an evaluator.
func earlierOf(all []store.Result, id string) (out Earlier, there bool, err error) {
	for _, r := range all {
		if r.EvaluatorID == id {
			out.Result = r
			if err := jsonv1.Unmarshal(r.Data, &out.Results); err != nil {
				return out, false, fmt.Errorf("evaluator %s: %w", id, err)
			}
			return out, true, nil
		}
	}
	return out, false, nil
}

// outputOf returns the agent's output.
func outputOf(segments []store.Segment) (out json.RawMessage) {
	for _, g := range segments {
		if g.Outcome == store.OutcomeCompleted {
			out = g.Output
		}
	}
	return out
}
