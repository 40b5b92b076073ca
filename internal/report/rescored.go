package report

import (
	"bytes"
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

// evaluations reads the evaluations of a view. It keeps the last one, since epochs follow each
// other.
type evaluations struct {
	view store.View
	data json.RawMessage
	last *eval.Evaluation
}

// of is what the results of a rollout are of.
func (e *evaluations) of(rv store.RolloutView) (*eval.Evaluation, error) {
	return e.read(rv.EvaluationID, rv.Evaluation)
}

// asked is that of a rollout as a rescoring asks it.
func (e *evaluations) asked(rv store.RolloutView, rescoring int) (*eval.Evaluation, error) {
	data, err := e.view.Evaluation(rv.ID, rescoring)
	if err != nil {
		return nil, err
	}
	return e.read(rv.EvaluationID, data)
}

func (e *evaluations) read(id string, data json.RawMessage) (*eval.Evaluation, error) {
	if e.last != nil && bytes.Equal(e.data, data) {
		return e.last, nil
	}
	e.last, e.data = new(eval.Evaluation), data
	if err := json.Unmarshal(data, e.last); err != nil {
		return nil, fmt.Errorf("the stored evaluation %s: %w", id, err)
	}
	return e.last, nil
}
