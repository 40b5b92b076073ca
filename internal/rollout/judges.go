package rollout

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/store"
)

// SpentOnJudges is what the judges of a run have cost so far, as its results say.
func SpentOnJudges(ctx context.Context, st store.Reader, runID string) (sum judge.Spent, err error) {
	err = st.Snapshot(ctx, runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			for _, stored := range r.Results {
				var results []eval.Result
				if err := json.Unmarshal(stored.Data, &results); err != nil {
					return err
				}
				for _, one := range results {
					if one.Judge == nil || one.Line {
						continue
					}
					for _, call := range one.Judge.Verdicts {
						sum.Add(call)
					}
				}
			}
			return nil
		})
	})
	return sum, err
}
