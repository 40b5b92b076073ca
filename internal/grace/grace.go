// Package grace gives requests that are on their way a little time after a stop. If a request that
// starts something were broken off, nobody could tell whether it has. The package knows contexts
// only.
package grace

import (
	"context"
	"time"
)

// Stop is how long a stop waits for such requests. A runner of CI jobs kills about ten seconds
// after it has asked a process to end.
const Stop = 5 * time.Second

// Outlast returns a context that ends grace after the other one. The caller must call end.
func Outlast(ctx context.Context, grace time.Duration) (longer context.Context, end func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		release()
		cancel()
	}
}
