package report

import (
	"encoding/json"
	"fmt"
	"path"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// readRescorings reads the rescorings of a view. It replaces the plan by the one by
// which the run is judged.
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
		one := schemas.Rescoring{
			Number: s.Number, EvaluatorsDigest: with.Digest, FileDigest: with.FileDigest,
			Only: o.redacted(with.Only), Failed: with.Failed, EvalrunVersion: with.Version,
			BegunAt: s.BegunAt.UTC(), EndedAt: timeOrNil(s.EndedAt), Due: s.Due, Scored: s.Scored, NotScored: s.Unscored,
		}
		if with.File != "" {
			one.File = o.Redact.String(path.Join(o.StorePath, o.Plan.BaseDir, with.File))
		}
		out = append(out, one)
	}
	return out
}

// readEvaluation decodes a stored evaluation.
func readEvaluation(id string, data json.RawMessage) (*eval.Evaluation, error) {
	e := new(eval.Evaluation)
	if err := jsonv1.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("the stored evaluation %s: %w", id, err)
	}
	return e, nil
}
