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
	"what the agent has left was in a container of a Docker daemon, and was not kept when that was removed; run the rollout again")

// keepRemote keeps what was changed in the rollout's container, as a file in the folder for changes of
// an image, and what is in the volumes of its services. Where evalrun has no program for the daemon's
// containers, nothing is kept beyond this process.
func (h *held) keepRemote() error {
	if h.remote == nil {
		return nil
	}
	daemon, err := openDaemon(context.Background())
	if err != nil {
		return err
	}
	if daemon.CanEquip(h.host.Executable) != nil {
		return nil
	}
	err = h.remote.Keep(h.layout().Dir(workspace.FolderUpper))
	if beside, ok := h.services.(*container.DaemonServices); ok && err == nil {
		err = beside.Keep()
	}
	return err
}

// openDaemon opens the daemon in whose containers rollouts run.
func openDaemon(ctx context.Context) (*container.Daemon, error) {
	daemon, err := container.OpenDaemon(ctx)
	if err != nil {
		return nil, fault.New(fault.NotRunnable, err.Error())
	}
	return daemon, nil
}

// openRemote gives the spec the rollout's container. Unlike a root of this machine it lasts no longer
// than this process has the rollout: from the agent's first process to the end of the tests. Another
// process has another container, which begins with what was kept of this one.
func (s *sandboxSpec) openRemote(ctx context.Context, h *held, begins bool) error {
	if begins || h.remote == nil {
		daemon, err := openDaemon(ctx)
		if err != nil {
			return err
		}
		if !daemon.Switches() && s.mixesNetworks() {
			return fault.New(fault.NotRunnable,
				"the agent and the tests are to have different networks, and the Docker daemon has no network of its own (bridge), between which and none a container could change")
		}
		from := "" // otherwise what an earlier container had changed, which is read when this one is made
		if !begins {
			from = s.folders.Dir(workspace.FolderUpper)
		}
		if err := s.newRemote(ctx, "", from); err != nil {
			return err
		}
		h.remote = s.remote
	}
	s.remote = h.remote
	return nil
}

// newRemote describes a container of the daemon for the spec; see [container.RemoteSpec].
func (s *sandboxSpec) newRemote(ctx context.Context, part, from string) error {
	daemon, err := openDaemon(ctx)
	if err != nil {
		return err
	}
	limits := limitsOf(&s.task.Config.Environment)
	limits.PIDs = maxPIDs
	s.remote = daemon.NewRemote(container.RemoteSpec{Rollout: s.marker, Part: part, Image: s.image.Digest,
		Workdir: s.folders.Workdir, Volumes: s.image.Config.VolumePaths(), Limits: limits, Executable: s.executable, From: from,
		Public: s.networked(tasks.Network{})})
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
