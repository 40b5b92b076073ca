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
	// firstPause is how long it waits after the collector could not be reached; the pause doubles
	// up to lastPause.
	firstPause = time.Second
	lastPause  = time.Minute
)

// Options are what an exporter needs.
type Options struct {
	Client *otlp.Client
	Store  store.Reader
	Origin Origin
	// Planned returns what is known of a run, Head how it stands.
	Planned Planned
	Head    func(ctx context.Context, runID string) (schemas.Head, error)
	// Content has inputs and outputs sent.
	Content bool
	// LeftOver has that sent, too, what processes before this one have begun to send and have not, of
	// any run of the store.
	LeftOver bool
	// Notice is told, once, that something cannot be sent.
	Notice func(text string)
}

// Exporter sends what happens in runs to a collector, beside the work on them. Its methods are safe
// for concurrent use.
type Exporter struct {
	o      Options
	kicked chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup

	mu sync.Mutex
	// changed are the runs of which there is something to send.
	changed map[string]bool
	told    bool
	// begun are the runs that have a log; it is the loop's.
	begun map[string]bool
	// refused counts the spans that the collector will not have, and noMetrics says that it will
	// have no metrics. They are the loop's, and when that has ended Close's.
	refused   int64
	noMetrics bool
	// after is how long the collector has asked for the last time.
	after time.Duration
}

// Start begins to send. Whoever has started it calls Close.
func Start(o Options) *Exporter {
	e := &Exporter{o: o, kicked: make(chan struct{}, 1), quit: make(chan struct{}), changed: map[string]bool{}, begun: map[string]bool{}}
	e.done.Go(func() {
		if o.LeftOver {
			e.findLeftOver()
		}
		e.loop()
	})
	return e
}

// Changed says that a run has changed. It never waits.
func (e *Exporter) Changed(runID string) {
	e.mu.Lock()
	e.changed[runID] = true
	e.mu.Unlock()
	select {
	case e.kicked <- struct{}{}:
	default:
	}
}

// Close sends what is left, as far as that can be done until ctx is done, and says what could not
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

// tellLeft says how much of the runs was not sent. It stays in the store.
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
		e.o.Notice(fmt.Sprintf("--otlp: %s of run %s were not sent to %s; evalrun resume RUN --otlp … sends them", spans(total), named(runs), e.name()))
	}
}

func named(runs []string) string {
	if len(runs) == 1 {
		return runs[0]
	}
	return fmt.Sprintf("%s and %d others", runs[0], len(runs)-1)
}

func (e *Exporter) loop() {
	pause, failures := time.Duration(0), 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-e.quit
		cancel() // what is being sent is sent again by Close
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

// flush sends what has happened in the runs that have changed, and returns those of which something
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
		case err == nil, errors.Is(err, store.ErrNotFound): // or it was removed
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

// errDown is the error of a run after another one of which nothing could be sent, errElsewhere that
// of a run which another process is sending.
var (
	errDown      = errors.New("the collector cannot be reached")
	errElsewhere = errors.New("another process is sending it")
)

// unreachableError means that the collector took nothing.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// tell says the first time that something cannot be sent.
func (e *Exporter) tell(err error) {
	e.mu.Lock()
	told := e.told
	e.told = true
	e.mu.Unlock()
	if !told {
		e.o.Notice(fmt.Sprintf("warning: --otlp: nothing can be sent to %s: %v; the work goes on, and it is tried again", e.name(), err))
	}
}
