package rollout

import (
	"context"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// contain makes the sandbox a container of an engine. Its root is the same as with isolation
// "image", so keeping, restoring and collecting files work alike. The container lasts as long as
// the process that is started in it.
func (s *sandboxSpec) contain(c *sandbox.Config) error {
	if s.image == nil {
		return fault.Newf(fault.NotRunnable, "isolation %q needs a task with an image", s.isolation)
	}
	engine, err := container.Open(context.Background(), s.isolation)
	if err != nil {
		return fault.New(fault.NotRunnable, err.Error())
	}
	network := container.NetworkNone
	if c.Network {
		if network, err = engine.Public(context.Background()); err != nil {
			return err
		}
	}
	if s.services != nil && network == container.NetworkHost {
		network = container.NetworkBridge // the services have networks of their own
	}
	c.Network = network == container.NetworkHost // every other network has a loopback of its own
	c.Space = engine.New(container.Spec{Rollout: s.marker, Network: network, Limits: limitsOf(&s.task.Config.Environment),
		Executable: s.executable, Services: s.services})
	return nil
}

// limitsOf returns the limits that a task sets for its environment.
func limitsOf(e *tasks.Environment) container.Limits {
	l := e.Limits()
	return container.Limits{MemoryMB: l.MemoryMB, CPUs: l.CPUs, GPUs: e.GPUs}
}
