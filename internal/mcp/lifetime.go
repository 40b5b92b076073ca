package mcp

import (
	"context"
	"sync"
)

// lifetime is the life of a connection, and of the goroutines within it.
type lifetime struct {
	ctx    context.Context // ends with the connection; the cause says why
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	ended   bool // no goroutine may be started any more
	running sync.WaitGroup
	telling sync.WaitGroup // what the server has to learn before the connection ends
}

func newLifetime() *lifetime {
	l := &lifetime{}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// err is why the connection has ended; nil before that.
func (l *lifetime) err() error { return context.Cause(l.ctx) }

// end ends the connection's context. The first cause stays.
func (l *lifetime) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.cancel(cause)
}

// spawn runs f on a goroutine that wait waits for. It returns false once the connection has ended.
func (l *lifetime) spawn(f func()) bool { return l.spawnIn(&l.running, f) }

// tell is like spawn, for what the server has to learn before the connection ends. f must end by
// itself.
func (l *lifetime) tell(f func()) { l.spawnIn(&l.telling, f) }

func (l *lifetime) spawnIn(group *sync.WaitGroup, f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		group.Go(f)
	}
	return !l.ended
}

// wait waits for every goroutine that spawn has started.
func (l *lifetime) wait() { l.running.Wait() }

// bind returns a context that ends with the connection, with ctx until detach is called, and when
// it is cancelled, which the caller must do.
func (l *lifetime) bind(ctx context.Context) (
	bound context.Context, detach func() bool, cancel context.CancelFunc,
) {
	bound, end := context.WithCancel(l.ctx)
	detach = context.AfterFunc(ctx, end)
	return bound, detach, func() { detach(); end() }
}
