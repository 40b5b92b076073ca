package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
)

// newMockPlayer makes the player of the rollout's tools. It goes on after the calls of earlier
// segments; an attempt that is repeated begins like the one before. It is nil if no tool is mocked.
func (h *held) newMockPlayer(ctx context.Context) (*mock.Player, error) {
	mocks := h.run.Plan.Mocks.Of(h.evaluation.ID, h.evaluation.Name)
	if len(mocks) == 0 || h.claim.Segment == 1 {
		return mock.NewPlayer(mocks, nil), nil
	}
	segments, err := h.host.Store.Segments(context.WithoutCancel(ctx), h.claim.RolloutID)
	if err != nil {
		return nil, err
	}
	before := map[string]int{}
	for _, g := range segments {
		if g.Outcome != store.OutcomeSuspended || g.Info == nil {
			continue
		}
		var info record.Info
		if err := json.Unmarshal(g.Info, &info); err != nil {
			return nil, fmt.Errorf("segment %d: %w", g.Number, err)
		}
		if info.Mocks == nil {
			continue
		}
		for place, n := range info.Mocks.Calls {
			before[place] += n
		}
	}
	return mock.NewPlayer(mocks, before), nil
}
