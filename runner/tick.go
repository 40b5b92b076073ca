package runner

import (
	"context"
	"time"

	"github.com/evalrun/evalrun/internal/engine"
)

// DefaultTick is how long a tick works at most by default. Platforms that start a container for each
// request commonly allow a minute.
const DefaultTick = 50 * time.Second

// Ticked says what a tick has left.
type Ticked struct {
	// Next is when the next tick has something to do without anybody's doing: now, if the time was
	// over before the work was; the end of its lease, if another process holds some of it; zero if only
	// a delivery or a new run makes a tick worth it.
	Next time.Time `json:"next,omitzero"`
	// Runnable is how many rollouts can go on at once, and Due how many sources are to be asked now.
	Runnable int `json:"runnable"`
	Due      int `json:"due"`
}

// Tick does what is due in all runs of the store, and ends: it asks the sources whose time has come,
// resumes what can go on, and works for at most maxTime. It starts no agent in the last fifth of it.
// Agents that run at its end are ended, and the next tick repeats their segments. Results documents are
// written after that. Several ticks may work on a store at once, and each may be killed.
//
// It is for places where no process lives between two requests: a cron job, a serverless platform.
func (s *Store) Tick(ctx context.Context, o Options, maxTime time.Duration) (Ticked, error) {
	working, end := context.WithTimeout(ctx, maxTime)
	defer end()
	drain, asked := make(chan struct{}), o.Drain
	o.Drain = drain
	late := time.NewTimer(maxTime - maxTime/5)
	defer late.Stop()
	go func() {
		defer close(drain)
		select {
		case <-asked:
		case <-late.C:
		case <-working.Done():
		}
	}()
	if err := s.execute(working, o, engine.UntilDone, false); err != nil {
		return Ticked{}, err
	}
	b, err := s.st.Backlog(context.WithoutCancel(ctx), "")
	if err != nil {
		return Ticked{}, err
	}
	ticked := Ticked{Next: b.NextDue, Runnable: b.Runnable, Due: b.Due}
	if b.Runnable > 0 || b.Due > 0 {
		ticked.Next = time.Now()
	}
	return ticked, nil
}
