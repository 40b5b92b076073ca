package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/tasks"
)

// takeVerifier asks the verifiers of tasks alone, with the present tests. The digests of task
// directories that have changed since are kept with the rescoring.
func (r *rescoring) takeVerifier(ctx context.Context) error {
	force := r.earlier.InForce()
	r.with.Evaluators, r.with.Only = force.Set.Evaluators, []string{eval.Verifier.ID}
	if !slices.ContainsFunc(r.with.Evaluators, func(d eval.Definition) bool { return d.Type == eval.TypeVerifier }) {
		return inputError("--verifier: run %s has no tasks, whose verifiers would be run again", r.runID)
	}
	planned, evaluations, err := r.readEvaluations(ctx)
	if err != nil {
		return err
	}
	var changed []string
	for i, e := range evaluations {
		var one eval.Evaluation
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return fmt.Errorf("evaluation %q: %w", e.ID, err)
		}
		if one.Task != nil {
			digest, err := tasks.Digest(filepath.Join(r.dir, filepath.FromSlash(one.Task.Dir)))
			if err == nil && digest != one.Task.Digest { // an unreadable task is not scored, with the reason
				changed, one.Task.Digest = append(changed, e.ID), digest
				if evaluations[i].Data, err = json.Marshal(one); err != nil {
					return err
				}
			}
		}
		if string(evaluations[i].Data) != string(planned[i].Data) {
			r.evaluations = append(r.evaluations, evaluations[i])
		}
	}
	r.say("%s have changed since they were run; their verifiers are as they are now: %s", "task directories", changed)
	plan := r.plan
	plan.Set.Evaluators = r.with.Evaluators
	stored, err := r.st.Plan(ctx, r.runID)
	if err != nil {
		return err
	}
	r.with.PlanDigest, err = plans.RescoredDigest(stored, plan, evaluations)
	return err
}
