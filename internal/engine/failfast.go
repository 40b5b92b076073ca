package engine

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// failFast cancels the rest of a run when a rollout has failed, if the plan says so. Local jobs go
// on, as they do when a person cancels.
func (r *Runner) failFast(ctx context.Context, e store.Event) {
	if e.Type != store.RolloutFinished {
		return
	}
	run, err := r.runs.get(ctx, e.RunID)
	if err != nil || !run.Plan.FailFast || !failed(e, &run.Plan.Set) {
		return // a run that cannot be read is reported when its rollouts are worked on
	}
	n, err := r.o.Store.Cancel(ctx, e.RunID, wait.LocalSources()...)
	if err != nil {
		r.o.Logger.Error("a rollout has failed, but the rest of its run could not be cancelled",
			"run", e.RunID, "rollout", e.RolloutID, "error", err)
		return
	}
	if n > 0 {
		r.o.Logger.Info("a rollout has failed: the rest of its run is cancelled",
			"run", e.RunID, "rollout", e.RolloutID, "cancelled", n)
		r.Tell(e.RunID)
	}
}

// failed reports whether a finished rollout has faulted, or has no score that passes.
func failed(e store.Event, set *eval.Set) bool {
	var data struct {
		State eval.State `json:"state"`
		Score *float64   `json:"score"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return false // evalrun wrote it
	}
	switch {
	case data.State == eval.StateFaulted:
		return true
	case data.State != eval.StateCompleted || len(set.Evaluators) == 0:
		return false
	}
	return data.Score == nil || !eval.Passes(*data.Score, set.Thresholds.Pass)
}
