package container

import (
	"context"
	"sync"
)

// opened are the engines that this process has found.
var opened struct {
	sync.Mutex
	engines map[string]*Engine
}

// Open is [Find] for a process that works on rollouts. The first time it removes the leftovers of
// killed processes.
func Open(ctx context.Context, name string) (*Engine, error) {
	opened.Lock()
	defer opened.Unlock()
	if e := opened.engines[name]; e != nil {
		return e, nil
	}
	e, err := Find(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := e.Sweep(ctx); err != nil {
		return nil, err
	}
	if opened.engines == nil {
		opened.engines = map[string]*Engine{}
	}
	opened.engines[name] = e
	return e, nil
}
