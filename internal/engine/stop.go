package engine

import (
	"context"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// A stop says nothing about a source. The context of a handler ends when the process is to stop.
// From then on only a result of a source counts as final, since a fault may come from the context's
// own error. Such a trigger is put back as it was, and the next process that claims it asks again.
// A request that changes something at a source is given a little time to be answered, because
// otherwise nobody could tell whether it has changed it.

// putBack leaves a claimed trigger to the next process after a time, as if it had not been claimed.
// notStarted says that its job was certainly not started.
func (o *Options) putBack(ctx context.Context, c store.TriggerClaim, after time.Duration, notStarted bool) error {
	return o.Store.TriggerFailed(context.WithoutCancel(ctx), c.TriggerToken, after,
		store.TriggerFailure{NotTried: true, NotStarted: notStarted})
}
