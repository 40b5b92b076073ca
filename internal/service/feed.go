package service

import (
	"context"
	"sync"
	"time"
)

// Feed lets all followers of a run share its reads: after a change the run is read once, by the
// first follower that asks.
type Feed[T any] struct {
	// changed returns a channel that is closed at the next change of a run.
	changed func(runID string) <-chan struct{}
	// read reads a run; known is the result of the previous read.
	read func(ctx context.Context, runID string, known T) (T, error)
	// pause is how long a run is not read again after a read, or ten times as long as the read took,
	// if that is longer. 0 disables the pause.
	pause time.Duration

	mu   sync.Mutex
	runs map[string]*followed[T]
}

// followed is a run with followers.
type followed[T any] struct {
	runID string
	// followers counts the followers; Feed.mu guards it.
	followers int

	mu sync.Mutex
	// changed is closed when known may be out of date; nil if nothing was read.
	changed <-chan struct{}
	known   T
	// due is the earliest time at which the run is read again.
	due time.Time
}

// NewFeed makes a feed of the results of read. A run is read at most once each pause, and for a
// tenth of the time at most; with a pause of 0 as soon as it has changed.
func NewFeed[T any](s *Service, pause time.Duration,
	read func(ctx context.Context, runID string, known T) (T, error)) *Feed[T] {
	return &Feed[T]{changed: s.st.Changed, read: read, pause: pause, runs: map[string]*followed[T]{}}
}

// Follower follows a run. The caller of Follow closes it.
type Follower[T any] struct {
	feed *Feed[T]
	run  *followed[T]
}

// Follow begins to follow a run. known is used by the first read if nobody else follows it.
func (f *Feed[T]) Follow(runID string, known T) *Follower[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, ok := f.runs[runID]
	if !ok {
		run = &followed[T]{runID: runID, known: known}
		f.runs[runID] = run
	}
	run.followers++
	return &Follower[T]{f, run}
}

// Close stops following.
func (l *Follower[T]) Close() {
	l.feed.mu.Lock()
	defer l.feed.mu.Unlock()
	if l.run.followers--; l.run.followers == 0 {
		delete(l.feed.runs, l.run.runID)
	}
}

// Now returns the state of the run, and a channel that is closed when it may have changed.
func (l *Follower[T]) Now(ctx context.Context) (known T, changed <-chan struct{}, err error) {
	f, run := l.feed, l.run
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.changed != nil {
		select {
		case <-run.changed:
			if f.pause > 0 && time.Now().Before(run.due) {
				return run.known, run.changed, nil
			}
		default:
			return run.known, run.changed, nil
		}
	}
	began, now := time.Now(), f.changed(run.runID)
	if known, err = f.read(ctx, run.runID, run.known); err != nil {
		return known, nil, err
	}
	run.changed, run.known = now, known
	run.due = time.Now().Add(max(f.pause, 10*time.Since(began)))
	return known, now, nil
}
