package rollout

import (
	"context"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// errRemoteGone is why the tests of a rollout cannot be run on what its agent has left.
var errRemoteGone = fault.New(fault.Workspace,
	"what the agent has left was in a container of a Docker daemon, which is removed when the process ends that ran the agent; run the rollout again")

// openDaemon opens the daemon in whose containers rollouts run.
func openDaemon(ctx context.Context) (*container.Daemon, error) {
	daemon, err := container.OpenDaemon(ctx)
	if err != nil {
		return nil, fault.New(fault.NotRunnable, err.Error())
	}
	return daemon, nil
}

// openRemote gives the spec the rollout's container. Unlike a root of this machine it lasts no longer
// than this process has the rollout: from the agent's first process to the end of the tests.
func (s *sandboxSpec) openRemote(ctx context.Context, h *held, begins bool) error {
	if begins {
		daemon, err := openDaemon(ctx)
		if err != nil {
			return err
		}
		if !daemon.Switches() && s.mixesNetworks() {
			return fault.New(fault.NotRunnable,
				"the agent and the tests are to have different networks, and the Docker daemon has no network of its own (bridge), between which and none a container could change")
		}
		if err := s.newRemote(ctx, ""); err != nil {
			return err
		}
		h.remote = s.remote
	}
	s.remote = h.remote
	return nil
}

// newRemote describes a container of the daemon for the spec.
func (s *sandboxSpec) newRemote(ctx context.Context, part string) error {
	daemon, err := openDaemon(ctx)
	if err != nil {
		return err
	}
	limits := limitsOf(&s.task.Config.Environment)
	limits.PIDs = maxPIDs
	s.remote = daemon.NewRemote(container.RemoteSpec{Rollout: s.marker, Part: part, Image: s.image.Digest,
		Workdir: s.folders.Workdir, Limits: limits, Executable: s.executable})
	return nil
}

// mixesNetworks reports whether some processes of the task may reach the network and some may not.
func (s *sandboxSpec) mixesNetworks() bool {
	var public, none bool
	for _, stage := range s.task.Stages() {
		for _, n := range []tasks.Network{stage.Agent.Network, stage.Verifier.Reaches()} {
			public, none = public || s.networked(n), none || !s.networked(n)
		}
	}
	return public && none
}

// fetch copies a path of the container to a folder of this machine, until done is called.
func (s *sandboxSpec) fetch(inside string) (below, rel string, done func(), err error) {
	if s.remote == nil {
		return "", "", nil, errRemoteGone
	}
	below, rel = s.folders.Dir("fetched"), "it"
	err = os.MkdirAll(below, 0o700)
	if err == nil {
		err = s.remote.Get(inside, filepath.Join(below, rel))
	}
	return below, rel, func() { _ = workspace.Remove(below) }, err
}
