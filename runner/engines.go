package runner

import (
	"sync"

	"github.com/evalrun/evalrun/internal/engine"
)

// engines are the engines of this process. The store tells them what other processes commit.
// Changes that this process makes beside them must be reported here.
type engines struct {
	mu      sync.Mutex
	running map[*engine.Runner]bool
}

func (g *engines) add(e *engine.Runner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == nil {
		g.running = map[*engine.Runner]bool{}
	}
	g.running[e] = true
}

func (g *engines) remove(e *engine.Runner) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, e)
}

// Wake tells the engines of this process that a run has changed by a write to the store that this
// package did not make.
func (s *Store) Wake(runID string) {
	s.engines.mu.Lock()
	defer s.engines.mu.Unlock()
	for e := range s.engines.running {
		e.Tell(runID)
	}
}
