package rollout

import (
	"context"
	"errors"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// startServices starts the services of the task's compose file, unless they run. They run until the
// agent is suspended or has failed, otherwise until its tests have ended. Their volumes are in the
// folders of the rollout; nothing else of them survives a suspension.
func (s *sandboxSpec) startServices(ctx context.Context, h *held) error {
	if s.compose == nil {
		return nil
	}
	if h.services == nil {
		engine, err := container.Open(ctx)
		if err != nil {
			return fault.New(fault.NotRunnable, err.Error())
		}
		services, err := engine.NewServices(container.ServicesSpec{Compose: s.compose, Rollout: s.marker,
			Internal: s.keptOffTheNetwork(), Volumes: s.folders.Dir(workspace.FolderVolumes)})
		if err != nil {
			return fault.New(fault.NotRunnable, err.Error())
		}
		if err := (rolloutImages{h}).keepServices(s.compose.Built()); err != nil {
			return err
		}
		h.services = services // this is set even if some of them cannot be started
		rolloutImages{h}.logStep("starting the services of " + container.ComposeFile)
		if err := services.Up(ctx); err != nil {
			if ctx.Err() != nil {
				return causeOf(ctx)
			}
			return setupFault(err)
		}
	}
	s.services = h.services
	return nil
}

// startServicesAgain starts the services for tests whose agent another process has run. The notes
// say what that means.
func (s *sandboxSpec) startServicesAgain(ctx context.Context, h *held) (notes []string, err error) {
	if s.compose != nil && h.services == nil {
		notes = []string{"the services of " + container.ComposeFile +
			" were started anew for the tests, with what was in their volumes alone"}
	}
	return notes, s.startServices(ctx, h)
}

// keptOffTheNetwork reports whether some process that uses the services must not reach the network.
// It could do so through the services' own network.
func (s *sandboxSpec) keptOffTheNetwork() bool {
	for _, stage := range s.task.Stages() {
		for _, n := range []tasks.Network{stage.Agent.Network, stage.Verifier.Reaches()} {
			if !s.networked(n) {
				return true
			}
		}
	}
	return false
}

// endServices removes the services.
func (h *held) endServices(ctx context.Context) error {
	if h.services == nil {
		return nil
	}
	services := h.services
	h.services = nil
	return services.Close(ctx)
}

// end removes the services and the container of a daemon, which run on until the tests have ended.
func (h *held) end(ctx context.Context) error {
	err := h.endServices(ctx)
	if h.remote != nil {
		err = errors.Join(err, h.remote.Remove(ctx))
		h.remote = nil
	}
	return err
}
