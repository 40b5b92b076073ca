package engine

import (
	"context"

	"github.com/evalrun/evalrun/internal/store"
)

// HandleTrigger handles a trigger that the test has claimed.
func (r *Runner) HandleTrigger(ctx context.Context, c store.TriggerClaim) { r.triggers.handle(ctx, c) }
