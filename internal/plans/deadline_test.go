package plans

import (
	"testing"
	"time"
)

// A job may take no longer than what waits for it, nor than the run; the run itself ends a moment
// after its deadline, if nobody has ended it by then.
func TestDeadlines(t *testing.T) {
	now := time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return now.Add(d)
	}
	for _, c := range []struct{ run, limit, job, suspend time.Duration }{
		{0, 0, 0, 0},
		{0, time.Hour, time.Hour, time.Hour},
		{time.Minute, 0, time.Minute, time.Minute + lateEnd},
		{time.Minute, time.Hour, time.Minute, time.Minute + lateEnd},
		{time.Hour, time.Minute, time.Minute, time.Minute},
		{-time.Hour, time.Minute, -time.Hour, time.Millisecond},
	} {
		p := Plan{Deadline: at(c.run)}
		p.Set.Limits.SuspendTimeout = c.limit
		suspend := p.SuspendTimeout(now)
		if suspend != c.suspend {
			t.Errorf("%+v: a suspension of %v", c, suspend)
		}
		if got := p.JobDeadline(at(suspend)); !got.Equal(at(c.job)) {
			t.Errorf("%+v: a job until %v", c, got)
		}
	}
}
