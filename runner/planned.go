package runner

import (
	"context"
	"errors"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// planned is a stored run with its plan, and the redactor for everything about it.
type planned struct {
	st    *rules.Store
	runID string
	plan  plans.Plan
	red   *redact.Redactor
}

// readPlanned reads the plan of a stored run.
func readPlanned(ctx context.Context, st *rules.Store, runID string, v Variables) (planned, error) {
	plan, err := readPlan(ctx, st, runID)
	if err != nil {
		return planned{}, err
	}
	return planned{st: st, runID: runID, plan: plan, red: v.Redactor(plan)}, nil
}

func readPlan(ctx context.Context, st store.Reader, runID string) (plans.Plan, error) {
	stored, err := st.Plan(ctx, runID)
	if err != nil {
		return plans.Plan{}, err
	}
	plan, err := plans.Read(stored)
	if errors.Is(err, plans.ErrLater) {
		return plan, &InputError{Err: err}
	}
	return plan, err
}

// save brings the results document in the store up to date.
func (p planned) save(ctx context.Context) error { return p.saveAnd(ctx, "", nil) }

// saveAnd saves like save, and also to the path also if that is not empty. It calls look with the
// saved report.
func (p planned) saveAnd(ctx context.Context, also string, look func(*report.Report) error) error {
	if err := p.st.InPlace(); err != nil {
		return err
	}
	own := documentPath(p.st, p.runID)
	err := report.SaveResults(ctx, p.st, p.runID, own, p.red, look)
	if also != "" && !durable.SameFile(own, also) {
		err = errors.Join(err, report.SaveResults(ctx, p.st, p.runID, also, p.red, nil))
	}
	return err
}

// saveAndJudge saves like saveAnd, and judges the run as it was saved.
func (p planned) saveAndJudge(ctx context.Context, also string, o judging, interrupted bool) (j Judgement, err error) {
	err = p.saveAnd(ctx, also, func(r *report.Report) (err error) {
		if !r.Final && interrupted {
			j, o.under = verdict.Interrupt(), nil
			return nil
		}
		j, err = r.Judge(o.accept)
		return err
	})
	if err == nil && len(o.under) > 0 {
		err = report.FromStoreUnder(ctx, p.st, p.runID, p.red, o.under, func(r *report.Report) (err error) {
			j, err = r.Judge(o.accept)
			return err
		})
	}
	return j, err
}

// judging says how a run is judged this time: what it may lack, and the thresholds that replace its
// own.
type judging struct {
	accept Accept
	under  eval.FailUnder
}

// judge judges the run as it stands in the store.
func (p planned) judge(ctx context.Context, accept Accept) (j Judgement, err error) {
	err = report.FromStore(ctx, p.st, p.runID, p.red, func(r *report.Report) (err error) {
		j, err = r.Judge(accept)
		return err
	})
	return j, err
}
