package jobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// DefaultRetention is how long ended jobs are kept by default.
const DefaultRetention = 30 * 24 * time.Hour

const (
	// forgetEvery is how often jobs are forgotten, forgetMost how many in one transaction.
	forgetEvery = time.Hour
	forgetMost  = 500
	// afterError is how long Keep waits after an error of the store.
	afterError = 5 * time.Second
)

// Keep ends the jobs of a store at their deadline, and cancelled ones at the end of their grace,
// until its context ends. It sleeps until the next of these times. Jobs that ended longer ago than
// retention are forgotten, unless that is 0; their runs stay.
func Keep(ctx context.Context, s *service.Service, retention time.Duration, log *slog.Logger) {
	k := keeper{runs: s.Runner(), st: s.Jobs(), retention: retention}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		changed := k.st.Changed("")
		next, err := k.act(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error("jobs cannot be kept", "error", err)
			next, changed = time.Now().Add(afterError), nil
		}
		timer.Reset(max(time.Until(next), time.Millisecond))
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
	}
}

type keeper struct {
	runs      *runner.Store
	st        service.Jobs
	retention time.Duration
	// forgotten is when jobs were last forgotten.
	forgotten time.Time
}

// act does what is due, and returns when it is to be called again.
func (k *keeper) act(ctx context.Context) (next time.Time, err error) {
	now := time.Now()
	if k.retention > 0 && now.Sub(k.forgotten) >= forgetEvery {
		n, err := k.st.ForgetJobs(ctx, k.retention, forgetMost)
		if err != nil {
			return next, err
		}
		if n == forgetMost {
			return now, nil // there are more
		}
		k.forgotten = now
	}
	due, err := k.st.NextDueJob(ctx)
	if err != nil {
		return next, err
	}
	if !due.IsZero() && !due.After(now) {
		ended, err := k.st.EndDueJobs(ctx, wait.LocalSources()...) // they go on, as with evalrun cancel
		if err != nil {
			return next, err
		}
		for _, id := range ended {
			k.runs.Wake(id)
		}
		return now, nil // there may be more
	}
	next = now.Add(forgetEvery)
	if !due.IsZero() && due.Before(next) {
		next = due
	}
	return next, nil
}
