package report

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// readRescorings reads the rescorings of a view. From then on the plan is that by which the run is
// judged.
func (o *Options) readRescorings(v store.View) error {
	stored, err := v.Rescorings()
	if err != nil {
		return err
	}
	if o.rescorings, err = o.Plan.ReadRescorings(stored); err != nil {
		return err
	}
	o.Plan = o.rescorings.InForce()
	return nil
}

// outdated reports whether the results of a rollout come from other evaluators or criteria than
// those by which the run is judged.
func (o Options) outdated(rv store.RolloutView) bool {
	return rv.State == eval.StateCompleted && o.rescorings.Outdated(rv.Rescoring)
}

func (o Options) headRescorings() (out []schemas.Rescoring) {
	for i, s := range o.rescorings.Stored {
		with := o.rescorings.With[i]
		one := schemas.Rescoring{Number: s.Number, EvaluatorsDigest: with.Digest, FileDigest: with.FileDigest, Only: o.redacted(with.Only), Failed: with.Failed,
			EvalrunVersion: with.Version, BegunAt: s.BegunAt.UTC(), EndedAt: timeOrNil(s.EndedAt), Due: s.Due, Scored: s.Scored, NotScored: s.Unscored}
		if with.File != "" {
			one.File = o.Redact.String(path.Join(o.StorePath, o.Plan.BaseDir, with.File))
		}
		out = append(out, one)
	}
	return out
}

// asked are the evaluations of a view: what its plan asks for, and what rescorings have asked for
// instead.
type asked struct {
	view     store.View
	planned  map[string]*eval.Evaluation
	rescored map[int]map[string]*eval.Evaluation
}

func askedOf(v store.View) (*asked, error) {
	a := &asked{view: v, planned: map[string]*eval.Evaluation{}, rescored: map[int]map[string]*eval.Evaluation{}}
	return a, v.Evaluations(readInto(a.planned))
}

// of is an evaluation as a rescoring has asked it, or with 0 as planned.
func (a *asked) of(id string, rescoring int) (*eval.Evaluation, error) {
	if rescoring == 0 {
		return a.planned[id], nil
	}
	all, ok := a.rescored[rescoring]
	if !ok {
		all = map[string]*eval.Evaluation{}
		if err := a.view.RescoredEvaluations(rescoring, readInto(all)); err != nil {
			return nil, err
		}
		a.rescored[rescoring] = all
	}
	if e := all[id]; e != nil {
		return e, nil
	}
	return a.planned[id], nil
}

// readInto reads stored evaluations into a map, by id.
func readInto(all map[string]*eval.Evaluation) func(store.Evaluation) error {
	return func(e store.Evaluation) error {
		one := new(eval.Evaluation)
		all[e.ID] = one
		if err := json.Unmarshal(e.Data, one); err != nil {
			return fmt.Errorf("the stored evaluation %s: %w", e.ID, err)
		}
		return nil
	}
}
