package rollout

import (
	"context"
	"errors"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
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
		if err := s.upServices(ctx, h); err != nil {
			return err
		}
	}
	s.services, _ = h.services.(*container.Services) // those of a daemon are known to its container
	return nil
}

func (s *sandboxSpec) upServices(ctx context.Context, h *held) error {
	services, err := s.newServices(ctx, h)
	if err != nil {
		return err
	}
	h.services = services // this is set even if some of them cannot be started
	rolloutImages{h}.logStep("starting the services of " + container.ComposeFile)
	err = services.Up(ctx)
	var f *fault.Fault
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return causeOf(ctx)
	case errors.As(err, &f):
		return f
	}
	return setupFault(err)
}

// services are those of a compose file: in podman, or in a Docker daemon.
type services interface {
	// Up starts them.
	Up(context.Context) error
	// Close removes them, and all that they have but the folder of their volumes.
	Close(context.Context) error
}

// newServices describes the services of the rollout, which are yet to run.
func (s *sandboxSpec) newServices(ctx context.Context, h *held) (services, error) {
	some, all := s.keptOffTheNetwork()
	spec := container.ServicesSpec{Compose: s.compose, Rollout: s.marker, Internal: some, Volumes: s.folders.Dir(workspace.FolderVolumes)}
	if s.isolation == sandbox.IsolationDocker {
		daemon, err := openDaemon(ctx)
		if err != nil {
			return nil, err
		}
		images := rolloutImages{h}
		beside := daemon.NewServices(container.DaemonServicesSpec{ServicesSpec: spec, Closed: all, Image: s.image.Digest, Get: images.getService})
		return beside, s.remote.Join(ctx, beside)
	}
	engine, err := container.Open(ctx)
	if err != nil {
		return nil, fault.New(fault.NotRunnable, err.Error())
	}
	if err := (rolloutImages{h}).keepServices(s.compose.Built()); err != nil {
		return nil, err
	}
	beside, err := engine.NewServices(spec)
	if err != nil {
		return nil, fault.New(fault.NotRunnable, err.Error())
	}
	return beside, nil
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

// keptOffTheNetwork reports whether some of the processes that use the services must not reach the network,
// which they could do through the services' own, and whether all must not.
func (s *sandboxSpec) keptOffTheNetwork() (some, all bool) {
	all = true
	for _, stage := range s.task.Stages() {
		for _, n := range []tasks.Network{stage.Agent.Network, stage.Verifier.Reaches()} {
			some, all = some || !s.networked(n), all && !s.networked(n)
		}
	}
	return some, all
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
func (h *held) end(ctx context.Context) (err error) {
	if h.remote != nil { // it has networks and volumes of the services
		err = h.remote.Remove(ctx)
		h.remote = nil
	}
	return errors.Join(err, h.endServices(ctx))
}
