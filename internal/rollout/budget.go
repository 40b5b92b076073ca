package rollout

import (
	"context"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// newBudget returns what the rollout may still spend on models, and the folders of the attempts
// before.
func (h *held) newBudget(ctx context.Context) (*agent.Budget, []string, error) {
	set := &h.run.Plan.Set
	b := &agent.Budget{Tokens: set.Limits.Tokens, Cost: set.Limits.Cost, Prices: set.Prices}
	if h.claim.Segment == 1 && h.claim.Attempt == 1 {
		return b, nil, nil
	}
	segments, err := h.host.Store.Segments(context.WithoutCancel(ctx), h.claim.RolloutID)
	if err != nil {
		return nil, nil, err
	}
	var dirs []string
	for _, g := range segments {
		dir := h.attemptDir(g.Number, g.Attempt)
		used, _, err := record.UsageOfSegment(g, dir, dirs)
		if err != nil {
			return nil, nil, err
		}
		b.Spent, dirs = append(b.Spent, used...), append(dirs, dir)
	}
	return b, dirs, nil
}

// keepToBudget turns an outcome that exceeds the budget into a fault.
func (r *Rollout) keepToBudget(ctx context.Context, out *agent.Outcome) {
	if ctx.Err() != nil || out.Info == nil || out.Fault != nil && out.Fault.Category == fault.Budget {
		return
	}
	f := r.budget.Exceeded(out.Info.Usage)
	switch {
	case f == nil:
	case out.Fault == nil:
		out.Fault = f
	case f.Category == fault.Budget:
		f.Message += "; " + out.Fault.Message
		out.Fault = f
	}
}
