package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
)

// volumesFolder is where a container that never runs has the volumes of services, each under its name. What is
// there is taken out and put in over the daemon's API.
const volumesFolder = "/.evalrun-volumes"

// archive is the file of this machine with what a volume had when it was kept.
func (s *DaemonServices) archive(volume string) string {
	return filepath.Join(s.spec.Volumes, volume+".tar")
}

// volumes are the names of the volumes in the compose file, or that they were given.
func (s *DaemonServices) volumes() []string { return s.spec.Compose.allVolumes(s.mounts) }

// errTaken is why a volume is not ours: a container that a killed process has asked for has it.
var errTaken = errors.New("somebody else has a volume of its name")

// makeVolumes makes the volumes, with what was kept of them.
func (s *DaemonServices) makeVolumes(ctx context.Context) error {
	var kept []string
	for _, name := range s.volumes() {
		labels, err := s.daemon.CreateVolume(ctx, s.resource(name), s.labels())
		if err == nil && labels[labelOwner] != owner(os.Getpid()) {
			err = errTaken
		}
		if err != nil {
			return err
		}
		if _, err := os.Stat(s.archive(name)); err == nil {
			kept = append(kept, name)
		}
	}
	if kept == nil {
		return nil
	}
	return s.withVolumes(ctx, func(id string) error {
		for _, name := range kept {
			if err := s.fill(ctx, id, name); err != nil {
				return fmt.Errorf("put into the volume %q what it had before: %w", name, err)
			}
		}
		return nil
	})
}

func (s *DaemonServices) fill(ctx context.Context, id, name string) error {
	archive, err := os.Open(s.archive(name))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // only read
	return s.daemon.Put(ctx, id, volumesFolder, archive)
}

// withVolumes calls do with a container that has all volumes, and never runs.
func (s *DaemonServices) withVolumes(ctx context.Context, do func(id string) error) error {
	spec := docker.Spec{Image: s.spec.Image, Entrypoint: []string{"none"}, Labels: s.labels()}
	spec.HostConfig.NetworkMode = NetworkNone
	at := map[string]string{}
	for _, name := range s.volumes() {
		at[path.Join(volumesFolder, name)] = name
	}
	spec.HostConfig.Mounts = s.mountsFor(at)
	for i := range spec.HostConfig.Mounts {
		spec.HostConfig.Mounts[i].VolumeOptions.NoCopy = true
	}
	id, err := s.daemon.Create(ctx, containerName(s.spec.Rollout)+"-volumes", spec)
	if err != nil {
		return err
	}
	err = do(id)
	ended, cancel := withinTime() // the other may be over
	defer cancel()
	return errors.Join(err, s.daemon.Remove(ended, id))
}

// Keep leaves an archive of each volume in the folder of the spec. The services stand still meanwhile, so that
// the volumes are as after a failure of power: what a database has promised to keep is there.
func (s *DaemonServices) Keep() (err error) {
	if len(s.volumes()) == 0 {
		return nil
	}
	ctx, cancel := withinTime()
	defer cancel()
	for _, one := range s.running {
		is, failed := s.daemon.Inspect(ctx, one.id)
		if failed == nil && !is.State.Running {
			continue
		}
		if failed == nil {
			failed = s.daemon.Pause(ctx, one.id)
		}
		if failed != nil {
			return s.of(one.service, fmt.Errorf("stop it to keep its volumes: %w", failed))
		}
		defer func() {
			ended, cancel := withinTime()
			defer cancel()
			err = errors.Join(err, s.daemon.Unpause(ended, one.id))
		}()
	}
	if err := os.MkdirAll(s.spec.Volumes, 0o755); err != nil {
		return err
	}
	return s.withVolumes(ctx, func(id string) error {
		for _, name := range s.volumes() {
			if err := s.take(ctx, id, name); err != nil {
				return fmt.Errorf("keep the volume %q of %s: %w", name, ComposeFile, err)
			}
		}
		return nil
	})
}

func (s *DaemonServices) take(ctx context.Context, id, name string) error {
	from, err := s.daemon.Get(ctx, id, path.Join(volumesFolder, name))
	if err != nil {
		return err
	}
	err = durable.WriteFile(s.archive(name), 0o600, func(w io.Writer) error {
		_, err := io.Copy(&bounded{w, maxOut}, from)
		return err
	})
	if err = errors.Join(err, from.Close()); errors.Is(err, docker.ErrTooLarge) {
		return fault.Newf(fault.DiskLimit, "it has more than %d MB", maxOut>>20)
	}
	return err
}
