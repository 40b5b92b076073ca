package gateway

import (
	"context"
	"sync"
)

// turn is a mutex for which one can wait until a context ends, because connecting to a server that
// does not answer takes long. The zero value is free.
type turn struct {
	once sync.Once
	held chan struct{} // has an element while somebody holds the turn
}

func (t *turn) slot() chan struct{} {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	return t.held
}

// Lock implements sync.Locker.
func (t *turn) Lock() { t.slot() <- struct{}{} }

// Unlock implements sync.Locker.
func (t *turn) Unlock() { <-t.slot() }

// lockIn locks, unless the context ends first.
func (t *turn) lockIn(ctx context.Context) error {
	select {
	case t.slot() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
