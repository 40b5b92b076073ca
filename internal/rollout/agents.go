package rollout

import (
	"errors"
	"sync"

	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types" // registers the types
)

// agents holds the agents of a run. They are made when a segment needs them, and closed when the
// run is closed and no segment uses them.
type agents struct {
	options agent.Options

	mu     sync.Mutex
	byName map[string]agent.Agent
	// segments counts the segments that use the agents. closed says that the run is closed.
	segments int
	closed   bool
}

// acquire returns the agent of an entry for a segment. The segment releases it.
func (a *agents) acquire(e agent.Entry) (agent.Agent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, ok := a.byName[e.Name]
	if !ok {
		var err error
		if one, err = e.New(a.options); err != nil {
			return nil, err // the failure harms only the agent's own rollouts
		}
		if a.byName == nil {
			a.byName = map[string]agent.Agent{}
		}
		a.byName[e.Name] = one
	}
	a.segments++
	return one, nil
}

func (a *agents) release() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.segments--
	return a.closeUnused()
}

func (a *agents) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.closeUnused()
}

func (a *agents) closeUnused() (err error) {
	if !a.closed || a.segments > 0 {
		return nil
	}
	for _, one := range a.byName {
		err = errors.Join(err, one.Close())
	}
	clear(a.byName)
	return err
}
