package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// UsageOf is what an attempt of a segment has used of models, whatever came of it: what it has
// reported, or if it was broken off, what its files in dir say. earlier are the folders of the
// attempts before it.
func UsageOf(g store.Segment, dir string, earlier []string) ([]eval.Usage, agent.UsageSource, error) {
	if g.Info == nil {
		if g.Outcome == store.OutcomeCompleted || g.Outcome == store.OutcomeSuspended || g.Outcome == store.OutcomeFailed && len(g.Files) > 0 {
			return nil, "", nil // it had its say
		}
		return agent.UsageLeft(dir, earlier)
	}
	var info struct {
		Usage  []eval.Usage      `json:"usage"`
		Source agent.UsageSource `json:"usageSource"`
	}
	if err := json.Unmarshal(g.Info, &info); err != nil {
		return nil, "", fmt.Errorf("what segment %d reports: %w", g.Number, err)
	}
	return info.Usage, info.Source, nil
}

// newBudget says what the rollout may still use of models, and which folders the attempts before
// have left.
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
		used, _, err := UsageOf(g, dir, dirs)
		if err != nil {
			return nil, nil, err
		}
		b.Spent, dirs = append(b.Spent, used...), append(dirs, dir)
	}
	return b, dirs, nil
}

// keepToBudget makes a fault of an outcome that has used too much.
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
