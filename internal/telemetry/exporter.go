package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/telemetry/otlp"
	"github.com/evalrun/evalrun/schemas"
)

const (
	// settleTime is how long the exporter waits after a change for others to come.
	settleTime = time.Second
	// firstPause is the pause after the collector could not be reached. It doubles
	// up to lastPause.
	firstPause = time.Second
	lastPause  = time.Minute
)

// Options configure an exporter.
type Options struct {
	Client *otlp.Client
	Store  store.Reader
	Origin Origin
	// Planned returns what is known of a run, Head its current state.
	Planned Planned
	Head    func(ctx context.Context, runID string) (schemas.Head, error)
	// Content makes the exporter send inputs and outputs.
	Content bool
	// LeftOver makes it also finish what earlier processes began to send, for any run of the
	// store.
	LeftOver bool
	// Notice is called once with a message if something cannot be sent.
	Notice func(text string)
}

// Exporter sends the events of runs to a collector, beside the work on them. Its methods are safe
// for concurrent use.
type Exporter struct {
	o      Options
	kicked chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup

	mu sync.Mutex
	// changed has the runs with something to send.
	changed map[string]bool
	told    bool
	// begun has the runs with a log. Only the loop uses it.
	begun map[string]bool
	// refused counts the spans that the collector refuses. noMetrics is set if it refuses
	// metrics. They belong to the loop, and when that has ended to Close.
	refused   int64
	noMetrics bool
	// after is the pause for which the collector asked last.
	after time.Duration
}

// Start begins to send. The caller must call Close.
func Start(o Options) *Exporter {
	e := &Exporter{
		o: o, kicked: make(chan struct{}, 1), quit: make(chan struct{}),
		changed: map[string]bool{}, begun: map[string]bool{},
	}
	e.done.Go(func() {
		if o.LeftOver {
			e.findLeftOver()
		}
		e.loop()
	})
	return e
}

// Changed notes that a run has changed. It never waits.
func (e *Exporter) Changed(runID string) {
	e.mu.Lock()
	e.changed[runID] = true
	e.mu.Unlock()
	select {
	case e.kicked <- struct{}{}:
	default:
	}
}

// Close sends the rest until ctx is done, and then reports what could not
// be sent.
func (e *Exporter) Close(ctx context.Context) {
	close(e.quit)
	e.done.Wait()
	left := e.flush(ctx, true)
	e.o.Client.Close()
	if len(left) > 0 {
		e.tellLeft(left)
	}
	if e.refused > 0 {
		e.o.Notice(fmt.Sprintf("--otlp: %s has refused %s", e.name(), spans(e.refused)))
	}
}

func (e *Exporter) name() string { return e.o.Client.Endpoint().Name() }

func spans(n int64) string {
	if n == 1 {
		return "1 span"
	}
	return fmt.Sprintf("%d spans", n)
}

// tellLeft reports how much of the runs was not sent. The rest stays in the store.
func (e *Exporter) tellLeft(runs []string) {
	total := int64(0)
	for _, id := range runs {
		n, err := e.unsent(context.Background(), id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			e.o.Notice(fmt.Sprintf("--otlp: run %s: %v", id, err))
		}
		total += n
	}
	if total > 0 {
		e.o.Notice(fmt.Sprintf("--otlp: %s of run %s were not sent to %s; evalrun resume RUN --otlp … sends them",
			spans(total), named(runs), e.name()))
	}
}

func named(runs []string) string {
	if len(runs) == 1 {
		return runs[0]
	}
	return fmt.Sprintf("%s and %d more", runs[0], len(runs)-1)
}

func (e *Exporter) loop() {
	pause, failures := time.Duration(0), 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-e.quit
		cancel() // Close sends the current request again
	}()
	for {
		select {
		case <-e.kicked:
		case <-e.quit:
			return
		}
		e.beginLogs()
		timer.Reset(max(settleTime, pause))
		select {
		case <-timer.C:
		case <-e.quit:
			return
		}
		if left := e.flush(ctx, false); len(left) == 0 {
			pause, failures = 0, 0
			continue
		}
		pause = max(retry.Backoff(firstPause, lastPause, failures), min(e.after, lastPause))
		failures++
		select {
		case e.kicked <- struct{}{}:
		default:
		}
	}
}

// flush sends the news of the runs that have changed, and returns the runs of which something
// is left.
func (e *Exporter) flush(ctx context.Context, last bool) (left []string) {
	e.mu.Lock()
	changed := e.changed
	e.changed = map[string]bool{}
	e.mu.Unlock()
	down := false
	for id := range changed {
		var err error
		if down {
			err = errDown
		} else {
			err = e.send(ctx, id, last)
		}
		switch unreachable := (*unreachableError)(nil); {
		case err == nil, errors.Is(err, store.ErrNotFound): // it is sent, or the run was removed
			continue
		case errors.As(err, &unreachable):
			down = true
			left = append(left, id)
			if ctx.Err() == nil {
				e.tell(err)
			}
		case errors.Is(err, errDown):
			left = append(left, id)
		case errors.Is(err, errElsewhere):
			left = append(left, id)
		case ctx.Err() != nil:
			left = append(left, id)
		default:
			e.o.Notice(fmt.Sprintf("warning: --otlp: run %s cannot be sent: %v", id, err))
			continue
		}
		e.mu.Lock()
		e.changed[id] = true
		e.mu.Unlock()
	}
	return left
}

// errDown is the error of a run after another one of which nothing could be sent. errElsewhere is
// the error of a run that another process is sending.
var (
	errDown      = errors.New("the collector cannot be reached")
	errElsewhere = errors.New("another process is sending it")
)

// unreachableError means that the collector took nothing.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// tell reports, the first time only, that something cannot be sent.
func (e *Exporter) tell(err error) {
	e.mu.Lock()
	told := e.told
	e.told = true
	e.mu.Unlock()
	if !told {
		e.o.Notice(fmt.Sprintf("warning: --otlp: nothing can be sent to %s: %v; the work goes on, and it is tried again",
			e.name(), err))
	}
}
