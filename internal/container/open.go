package container

import (
	"context"
	"sync"
)

// opened is the engine that this process has found.
var opened struct {
	sync.Mutex
	*Engine
}

// Open is [Find] for a process that works on rollouts. The first time it removes the leftovers of
// killed processes.
func Open(ctx context.Context) (*Engine, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.Engine != nil {
		return opened.Engine, nil
	}
	e, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := e.Sweep(ctx); err != nil {
		return nil, err
	}
	opened.Engine = e
	return e, nil
}
