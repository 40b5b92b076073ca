package jobs

import (
	"context"
	"sync"
)

// watches lets the requests that wait for a job share its reads: each change of its run is read
// once, for all of them. Nothing polls.
type watches[T any] struct {
	// changed is the store's method.
	changed func(runID string) <-chan struct{}
	// read reads the changes since known. moved says that waiting requests may care, and last that
	// nothing will follow.
	read func(ctx context.Context, id string, known T) (now T, moved, last bool, err error)

	mu   sync.Mutex
	open map[string]*watch[T]
}

// watch follows one job as long as a request waits for it.
type watch[T any] struct {
	waiters int
	stop    context.CancelFunc

	mu sync.Mutex
	// moved is closed when state or err has changed.
	moved chan struct{}
	state T
	err   error
}

func newWatches[T any](changed func(string) <-chan struct{},
	read func(context.Context, string, T) (T, bool, bool, error)) *watches[T] {
	return &watches[T]{changed: changed, read: read, open: map[string]*watch[T]{}}
}

// join begins to wait for a job of a run. known is what the caller has read of it.
func (ws *watches[T]) join(id, runID string, known T) *watch[T] {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.open[id]
	if !ok {
		ctx, stop := context.WithCancel(context.Background())
		w = &watch[T]{stop: stop, moved: make(chan struct{}), state: known}
		ws.open[id] = w
		go ws.follow(ctx, w, id, runID)
	}
	w.waiters++
	return w
}

// leave ends one wait.
func (ws *watches[T]) leave(id string, w *watch[T]) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		w.stop()
		delete(ws.open, id)
	}
}

// follow reads changes until nobody waits any more, nothing will follow, or the store fails.
func (ws *watches[T]) follow(ctx context.Context, w *watch[T], id, runID string) {
	known := w.state
	for {
		changed := ws.changed(runID)
		now, moved, last, err := ws.read(ctx, id, known)
		if moved || err != nil {
			w.set(now, err)
		}
		if last || err != nil {
			return
		}
		known = now
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch[T]) set(state T, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.err = state, err
	close(w.moved)
	w.moved = make(chan struct{})
}

// now returns the state, and a channel that is closed when there is more.
func (w *watch[T]) now() (T, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.moved, w.err
}
