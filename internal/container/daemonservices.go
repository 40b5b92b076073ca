package container

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/image"
)

// DaemonServices are the containers, networks and volumes of one rollout that a compose file has beside its
// service main, in a Docker daemon. They do for a [Remote] what [Services] do in podman.
type DaemonServices struct {
	daemon *Daemon
	spec   DaemonServicesSpec
	// mounts are the volumes of each service, by their inside paths.
	mounts map[string]map[string]string
	// running are the containers of the services.
	running []runningService
}

// DaemonServicesSpec describes the services of a rollout. Its Volumes is the folder of this machine in which
// Keep leaves an archive of each volume, and in which Up finds those of earlier services.
type DaemonServicesSpec struct {
	ServicesSpec
	// Closed says that no user of the services may reach a network, so that nobody needs names of its machines.
	Closed bool
	// Image is the digest of some image of the daemon, that of main.
	Image string
	// Get gets the image of a service.
	Get func(context.Context, image.Spec) (*image.Image, error)
}

type runningService struct {
	service
	id  string
	tty bool
}

// CanCompose returns why the daemon cannot run the services of compose files, or nil if it can.
func (d *Daemon) CanCompose() error {
	switch {
	case d.IsPodman():
		return errors.New("what DOCKER_HOST names is podman, whose services take --isolation podman")
	case !d.bridged:
		return errors.New("services need a Docker daemon with its own network (bridge)")
	}
	return nil
}

// NewServices describes services that are yet to run.
func (d *Daemon) NewServices(s DaemonServicesSpec) *DaemonServices {
	return &DaemonServices{daemon: d, spec: s}
}

func (s *DaemonServices) resource(name string) string { return resourceName(s.spec.Rollout, name) }

// labels are those of all that is made here.
func (s *DaemonServices) labels() map[string]string {
	own := ownLabels(s.spec.Rollout)
	own[labelProject] = containerName(s.spec.Rollout)
	return own
}

// Up builds or pulls the images of the services and starts them, with what Keep has left in their volumes. It
// waits until each is healthy or, where main wants that, has ended well. The container of main must be made
// afterwards. A caller that Up returns an error to calls Close all the same.
func (s *DaemonServices) Up(ctx context.Context) error {
	specs := map[string]docker.Spec{}
	s.mounts = map[string]map[string]string{}
	for _, one := range s.spec.Compose.services {
		var err error
		if specs[one.name], err = s.describe(ctx, one); err != nil {
			return s.of(one, err)
		}
	}
	if err := s.makeAll(ctx, specs); err != nil {
		return err
	}
	awaited := map[string]bool{}
	await := func(which func(runningService) bool) error {
		for _, one := range s.running {
			if awaited[one.name] || !which(one) {
				continue
			}
			if err := s.await(ctx, one); err != nil {
				return s.of(one.service, err)
			}
			awaited[one.name] = true
		}
		return nil
	}
	for _, one := range s.running {
		if err := await(func(other runningService) bool { return slices.Contains(one.after, other.name) }); err != nil {
			return err
		}
		if err := s.daemon.Start(ctx, one.id); err != nil {
			return s.of(one.service, s.daemon.fault(fmt.Errorf("start it: %w", err)))
		}
	}
	return await(func(runningService) bool { return true })
}

// takenTimeout is how long a daemon may go on with what a killed process has asked it for.
const takenTimeout = time.Minute

// makeAll makes networks, volumes and containers, in place of what an earlier holder of the rollout has left. A
// daemon goes on with what a killed process has asked it for, and so may make something of a name again.
func (s *DaemonServices) makeAll(ctx context.Context, specs map[string]docker.Spec) error {
	for until := time.Now().Add(takenTimeout); ; {
		err := s.remove(ctx, "")
		if err == nil {
			err = s.make(ctx, specs)
		}
		if taken := docker.IsStatus(err, http.StatusConflict) || errors.Is(err, errTaken); !taken || time.Now().After(until) {
			return err
		}
		timer := time.NewTimer(200 * time.Millisecond) // nothing tells when the daemon has done it
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (s *DaemonServices) make(ctx context.Context, specs map[string]docker.Spec) error {
	s.running = nil
	for _, name := range s.networks() {
		if err := s.daemon.CreateNetwork(ctx, s.resource(name), s.spec.Internal, s.labels()); err != nil {
			return fmt.Errorf("make the network %q of %s: %w", name, ComposeFile, err)
		}
	}
	if err := s.makeVolumes(ctx); err != nil {
		return fmt.Errorf("make the volumes of %s: %w", ComposeFile, s.daemon.fault(err))
	}
	for _, one := range s.spec.Compose.services {
		if err := s.create(ctx, one, specs[one.name]); err != nil {
			return s.of(one, s.daemon.fault(err))
		}
	}
	return nil
}

// of says of which service an error is. A fault keeps its category.
func (s *DaemonServices) of(one service, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return fault.Newf(f.Category, "service %q of %s: %s", one.name, ComposeFile, f.Message)
	}
	return fmt.Errorf("service %q of %s: %w", one.name, ComposeFile, err)
}

// networks are the networks of the file that somebody uses.
func (s *DaemonServices) networks() []string {
	used := slices.Clone(s.spec.Compose.networks)
	for _, one := range s.spec.Compose.services {
		used = append(used, networksOf(s.spec.Compose.definition(one.name))...)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

func networksOf(definition map[string]any) []string { return definition["networks"].([]string) }

// describe gets the image of a service, and says of what its container is made. It also finds out which
// volumes the service has.
func (s *DaemonServices) describe(ctx context.Context, one service) (docker.Spec, error) {
	of := s.spec.Compose.definition(one.name)
	spec, err := specOf(of)
	if err != nil {
		return spec, err
	}
	i, err := s.spec.Get(ctx, imageOf(of))
	if err != nil {
		return spec, err
	}
	spec.Image, spec.Labels = i.Digest, s.labels()
	s.mounts[one.name] = s.spec.Compose.mountsOf(one, i.Config.VolumePaths())
	spec.HostConfig.Mounts = s.mountsFor(s.mounts[one.name])
	covered := s.spec.Compose.covered(one.name)
	for _, at := range i.Config.VolumePaths() {
		if _, inMemory := spec.HostConfig.Tmpfs[at]; slices.Contains(covered, at) && !inMemory {
			m := docker.Mount{Type: "volume", Target: at} // it goes with the container
			m.VolumeOptions.Labels = spec.Labels
			spec.HostConfig.Mounts = append(spec.HostConfig.Mounts, m)
		}
	}
	s.join(&spec, networksOf(of), one.name)
	if s.spec.Internal {
		spec.HostConfig.Dns = noNames
	}
	return spec, nil
}

// noNames is the name server of containers that reach nothing but each other: there is none at that address. A
// daemon that is older than 2024 may otherwise ask its own for them.
var noNames = []string{"127.0.0.1"}

// join puts a container that is yet to be made into the first of its networks, under a name.
func (s *DaemonServices) join(spec *docker.Spec, networks []string, as string) {
	spec.HostConfig.NetworkMode = s.resource(networks[0])
	spec.NetworkingConfig.EndpointsConfig = map[string]docker.Endpoints{spec.HostConfig.NetworkMode: {Aliases: []string{as}}}
}

// connect connects a container that was made with the rest of its networks.
func (s *DaemonServices) connect(ctx context.Context, id string, networks []string, as string) error {
	for _, name := range networks[1:] {
		if err := s.daemon.Connect(ctx, id, s.resource(name), as); err != nil {
			return err
		}
	}
	return nil
}

// admit puts the container of main, which is yet to be made, into its first network, with its volumes.
func (s *DaemonServices) admit(main *docker.Spec) {
	s.join(main, s.spec.Compose.networks, mainService)
	main.HostConfig.Mounts = append(main.HostConfig.Mounts, s.mountsFor(s.spec.Compose.volumes)...)
	if s.spec.Closed {
		main.HostConfig.Dns = noNames
	}
}

// connectMain connects the container of main with the rest of its networks, of which network is one.
func (s *DaemonServices) connectMain(ctx context.Context, id, network string) error {
	err := s.connect(ctx, id, s.spec.Compose.networks, mainService)
	if err == nil && network == NetworkBridge {
		err = s.moveMain(ctx, id, network)
	}
	return err
}

// moveMain lets the container of main reach everything, by [NetworkBridge], or nothing but the services. Where all
// may reach everything the services' own networks lead there.
func (s *DaemonServices) moveMain(ctx context.Context, id, network string) error {
	switch {
	case !s.spec.Internal:
		return nil
	case network == NetworkBridge:
		return s.daemon.Connect(ctx, id, NetworkBridge)
	}
	return s.daemon.Disconnect(ctx, id, NetworkBridge)
}

// mountsFor are mounts of volumes of the file.
func (s *DaemonServices) mountsFor(volumes map[string]string) (out []docker.Mount) {
	for _, at := range slices.Sorted(maps.Keys(volumes)) {
		m := docker.Mount{Type: "volume", Source: s.resource(volumes[at]), Target: at}
		m.VolumeOptions.Labels = s.labels()
		_, err := os.Stat(s.archive(volumes[at]))
		m.VolumeOptions.NoCopy = err == nil // it has what it had before, and not what the image has there
		out = append(out, m)
	}
	return out
}

// create makes the container of a service, with the folders beside the file.
func (s *DaemonServices) create(ctx context.Context, one service, spec docker.Spec) error {
	of := s.spec.Compose.definition(one.name)
	id, err := s.daemon.Create(ctx, s.resource(one.name), spec)
	if err != nil {
		return fmt.Errorf("create its container: %w", err)
	}
	s.running = append(s.running, runningService{one, id, spec.Tty})
	if err := s.connect(ctx, id, networksOf(of), one.name); err != nil {
		return err
	}
	for _, folder := range foldersOf(of) {
		err := s.daemon.putTrees(ctx, id, "/", func(a *tar.Writer) error {
			return docker.AddTree(a, folder.host, inArchive(folder.inside), docker.Root)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until a service is healthy, has ended if somebody waits for that, or else runs.
func (s *DaemonServices) await(ctx context.Context, one runningService) error {
	if one.completes {
		ctx, cancel := untilEnd(ctx)
		defer cancel()
		if err := s.daemon.Await(ctx, one.id); err != nil {
			return err
		}
		is, err := s.daemon.Inspect(ctx, one.id)
		if err == nil && is.State.ExitCode != 0 {
			err = fmt.Errorf("it ended with status %d, and others wait for its success%s", is.State.ExitCode, s.lastWords(ctx, one))
		}
		return err
	}
	runs := func() error {
		is, err := s.daemon.Inspect(ctx, one.id)
		if err == nil && !is.State.Running && is.State.ExitCode != 0 {
			err = fmt.Errorf("it does not run (exited %d)%s", is.State.ExitCode, s.lastWords(ctx, one))
		}
		return err
	}
	if one.health == nil {
		return runs()
	}
	return awaitHealth(ctx, one.health, func(ctx context.Context) error {
		var said beginning
		status, err := s.daemon.Run(ctx, one.id, docker.Exec{Cmd: one.health.Args}, docker.Streams{Out: &said, Err: &said})
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d: %s", status, lastLine(said.String()))
		}
		return err
	}, runs)
}

func (s *DaemonServices) lastWords(ctx context.Context, one runningService) string {
	said := s.daemon.LastLines(ctx, one.id, one.tty)
	if said == "" {
		return ""
	}
	return ": " + said
}

// Close removes the containers of the services, their networks and their volumes, unless another holder of
// the rollout has made its own meanwhile. The container of main must be gone.
func (s *DaemonServices) Close(ctx context.Context) error { return s.remove(ctx, owner(os.Getpid())) }

// remove removes everything of the file that the daemon has, and what else has to do with the rollout. If made
// is not empty it removes only what that process has made.
func (s *DaemonServices) remove(ctx context.Context, made string) error {
	// Of an earlier holder the container of main is still there.
	label := labelProject + "=" + containerName(s.spec.Rollout)
	if made == "" {
		label = labelRollout + "=" + s.spec.Rollout
	}
	_, err := s.daemon.removeAll(ctx, label, func(labels map[string]string) bool {
		return labels[labelRollout] == s.spec.Rollout && (made == "" || labels[labelOwner] == made)
	})
	return err
}
