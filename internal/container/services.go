package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// Services are the containers, networks and volumes of one rollout that a compose file has beside
// its service main.
type Services struct {
	engine  *Engine
	compose *Compose
	// program is podman-compose.
	program string
	rollout string
	// internal keeps the services off every network but their own.
	internal bool
	// volumes is the folder of this machine in which the volumes are.
	volumes string
	// addresses are the addresses of the services in podman. With the networks of CNI, which Debian 12
	// has, podman resolves no names in a network that leads nowhere.
	addresses map[string]string
	// mounts are the volumes of each service, by their inside paths.
	mounts map[string]map[string]string
	// refused is the last complaint of the engine when they were started.
	refused string
}

// ServicesSpec describes the services that run beside the containers of a rollout.
type ServicesSpec struct {
	Compose *Compose
	// Rollout is the marker of the rollout.
	Rollout string
	// Internal keeps the services off every network but their own, as it does their user.
	Internal bool
	// Volumes is the absolute path of a folder in which each volume is a folder. Files that services
	// and main write there outlive them.
	Volumes string
}

// NewServices describes services that are yet to run.
func (e *Engine) NewServices(spec ServicesSpec) (*Services, error) {
	s := &Services{engine: e, compose: spec.Compose, rollout: spec.Rollout, internal: spec.Internal, volumes: spec.Volumes}
	var err error
	s.program, err = composeProgram()
	return s, err
}

// CanCompose returns the reason why podman cannot run compose files here, or nil if it can.
func CanCompose(ctx context.Context) error {
	_, err := Find(ctx)
	if err == nil {
		_, err = composeProgram()
	}
	return err
}

// composeProgram finds the program that runs compose files in podman.
func composeProgram() (string, error) {
	path, err := exec.LookPath("podman-compose")
	if err != nil {
		return "", fmt.Errorf("%s needs podman-compose, which is not installed: apt-get install podman-compose", ComposeFile)
	}
	return path, nil
}

// project is the name under which the engine keeps everything of the file.
func (s *Services) project() string { return containerName(s.rollout) }

// resource is the name of one of the file's networks or volumes in the engine.
func (s *Services) resource(name string) string { return resourceName(s.rollout, name) }

// resourceName is the name of what a rollout has beside its container, by its name in the compose file.
func resourceName(rollout, name string) string { return containerName(rollout) + "_" + name }

// servicesTimeout is how long services may take to start, with the builds of their images. Their
// healthchecks have times of their own.
const servicesTimeout = 10 * time.Minute

// Up builds or pulls the images of the services and starts them. It waits until each is healthy or,
// where main wants that, has ended well.
func (s *Services) Up(ctx context.Context) error {
	if err := s.remove(ctx, ""); err != nil { // what an earlier holder has left
		return err
	}
	if len(s.compose.services) == 0 {
		return s.makeResources(ctx)
	}
	dir, err := newFolder()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing but the file
	file := filepath.Join(dir, ComposeFile)
	if err := s.prepare(ctx, file); err != nil {
		return err
	}
	if err := s.start(ctx, file); err != nil {
		return err
	}
	err = s.learnAddresses(ctx)
	// podman-compose goes on after podman has refused something, perhaps only for a moment.
	if errors.Is(err, errNotStarted) {
		if err := s.start(ctx, file); err != nil {
			return err
		}
		err = s.learnAddresses(ctx)
	}
	if err != nil {
		return err
	}
	for _, one := range s.compose.services {
		if err := s.await(ctx, one); err != nil {
			return fmt.Errorf("service %q of %s: %w", one.name, ComposeFile, err)
		}
	}
	return nil
}

// prepare builds or pulls the images, makes the networks and volumes, and writes the file for the
// engine's compose.
func (s *Services) prepare(ctx context.Context, file string) error {
	if err := s.write(file); err != nil { // for the builds
		return err
	}
	err := s.nameVolumes(ctx, file)
	if err == nil {
		err = s.makeResources(ctx)
	}
	if err == nil {
		err = s.write(file)
	}
	return err
}

func (s *Services) write(file string) error {
	text, err := json.Marshal(s.document()) // JSON is YAML
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// start starts the services.
func (s *Services) start(ctx context.Context, file string) error {
	said, err := s.runCompose(ctx, file, "up", "-d")
	s.refused = complaints(said)
	return err
}

// runCompose runs a command of the engine's compose and returns its complaints. Two that build at
// once could break each other.
func (s *Services) runCompose(ctx context.Context, file string, args ...string) (complaints string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, servicesTimeout,
		fmt.Errorf("the services of %s did not start within %v", ComposeFile, servicesTimeout))
	defer cancel()
	unlock, err := LockBuilds()
	if err != nil {
		return "", err
	}
	defer unlock()
	_, complaints, err = s.engine.output(ctx, s.program, "compose",
		append([]string{"-p", s.project(), "-f", file}, args...)...)
	return complaints, err
}

// LockBuilds keeps every other process of this user from building services, until unlock is called.
func LockBuilds() (unlock func(), err error) {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("evalrun-compose-%d.lock", os.Getuid())),
		os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", lock.Name(), err), lock.Close())
	}
	return func() { _ = lock.Close() }, nil // which ends the lock
}

// complaints returns the complaints of an engine, each once. If something was started again after
// it could not be made, one complaint too many comes last.
func complaints(said string) string {
	var out []string
	for line := range strings.Lines(said) {
		if _, text, ok := strings.Cut(line, "Error: "); ok && !slices.Contains(out, strings.TrimSpace(text)) {
			out = append(out, strings.TrimSpace(text))
		}
	}
	if out == nil {
		return ""
	}
	return ": " + strings.Join(out, "; ")
}

// learnAddresses looks up the addresses of the services and tells each service those of the others.
func (s *Services) learnAddresses(ctx context.Context) error {
	s.addresses = map[string]string{}
	var files []string
	lines := ""
	for _, one := range s.compose.services {
		name, err := s.container(ctx, one)
		if err != nil {
			return err
		}
		out, err := s.engine.run(ctx, "inspect", "--format",
			"{{.HostsPath}}{{range .NetworkSettings.Networks}} {{.IPAddress}}{{end}}", name)
		if err != nil {
			return err
		}
		if found := strings.Fields(out); len(found) > 1 { // a container that has ended has none
			files, s.addresses[one.name] = append(files, found[0]), found[1]
			lines += found[1] + "\t" + one.name + "\n"
		}
	}
	for _, file := range files {
		if err := appendTo(file, lines); err != nil {
			return err
		}
	}
	return nil
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

var errNotStarted = errors.New("was not started: its image could not be built or pulled, or its command is wrong")

// container is the name of the container of a service.
func (s *Services) container(ctx context.Context, one service) (string, error) {
	name, err := s.engine.run(ctx, "ps", "-a", "--filter", "label="+labelProject+"="+s.project(),
		"--filter", "label=com.docker.compose.service="+one.name, "--format", "{{.Names}}")
	if err == nil && name == "" {
		err = fmt.Errorf("service %q of %s %w%s", one.name, ComposeFile, errNotStarted, s.refused)
	}
	return name, err
}

// hosts are the names of the services with their addresses, in the form of --add-host.
func (s *Services) hosts() (hosts []string) {
	for _, name := range slices.Sorted(maps.Keys(s.addresses)) {
		hosts = append(hosts, name+":"+s.addresses[name])
	}
	return hosts
}

// labelProject is the label that every compose program gives to what it makes.
const labelProject = "com.docker.compose.project"

// document is the file that the engine's compose gets. It has the services with our labels.
// Resources that have been made for them are external in it.
func (s *Services) document() map[string]any {
	own := map[string]any{}
	for _, l := range labels(s.rollout) {
		name, value, _ := strings.Cut(l, "=")
		own[name] = value
	}
	services, networks, volumes := map[string]any{}, map[string]any{}, map[string]any{}
	made := func(name string) map[string]any { return map[string]any{"external": true, "name": s.resource(name)} }
	for name, one := range s.compose.project["services"].(map[string]any) {
		one := maps.Clone(one.(map[string]any))
		one["labels"] = own
		for _, network := range one["networks"].([]string) {
			networks[network] = made(network) // no others: podman-compose does not take them
		}
		mounted := append([]string{}, one["volumes"].([]string)...) // podman-compose takes no null
		for _, inside := range slices.Sorted(maps.Keys(s.mounts[name])) {
			mounted = append(mounted, s.mounts[name][inside]+":"+inside)
		}
		one["volumes"] = mounted
		services[name] = one
	}
	for _, name := range s.compose.allVolumes(s.mounts) {
		volumes[name] = made(name)
	}
	return map[string]any{"version": "3", "services": services, "networks": networks, "volumes": volumes}
}

// untilEnd bounds the wait for the end of a service.
func untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, servicesTimeout, fmt.Errorf("it has not ended within %v, and others wait for that", servicesTimeout))
}

// await waits until a service is healthy, has ended if somebody waits for that, or else runs.
func (s *Services) await(ctx context.Context, one service) error {
	name, err := s.container(ctx, one)
	if err != nil {
		return err
	}
	if one.completes {
		ctx, cancel := untilEnd(ctx)
		defer cancel()
		status, err := s.engine.run(ctx, "wait", name)
		if err == nil && status != "0" {
			err = fmt.Errorf("it ended with status %s, and others wait for its success%s", status, s.engine.lastWords(ctx, name))
		}
		return err
	}
	if one.health == nil {
		return s.running(ctx, name)
	}
	return awaitHealth(ctx, one.health, func(ctx context.Context) error {
		_, err := s.engine.run(ctx, append([]string{"exec", name}, one.health.Args...)...)
		return err
	}, func() error { return s.running(ctx, name) })
}

// running returns an error that says why a service does not run.
func (s *Services) running(ctx context.Context, name string) error {
	state, err := s.engine.run(ctx, "inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", name)
	if err == nil && !strings.HasPrefix(state, "running") && state != "exited 0" {
		err = fmt.Errorf("it does not run (%s)%s", state, s.engine.lastWords(ctx, name))
	}
	return err
}

// awaitHealth repeats a healthcheck until it succeeds or has failed too often, or its service does not run any
// more. podman's own checks would need systemd.
func awaitHealth(ctx context.Context, h *sandbox.Healthcheck, try func(context.Context) error, running func() error) error {
	began := time.Now()
	for failures := 0; ; {
		attempt, cancel := context.WithTimeoutCause(ctx, h.Timeout,
			fmt.Errorf("the healthcheck took longer than %v", h.Timeout))
		err := try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := running(); err != nil {
			return err
		}
		pause := h.StartInterval
		if time.Since(began) >= h.StartPeriod {
			pause = h.Interval
			if failures++; failures >= h.Retries {
				return fmt.Errorf("it is not healthy after %d attempts, the last time: %w", failures, err)
			}
		}
		timer := time.NewTimer(cmp.Or(pause, time.Second)) // nothing tells when a service is healthy
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// networkArgs are the flags with which main is created.
func (s *Services) networkArgs() (args []string) {
	for _, name := range s.compose.networks {
		args = append(args, "--network", s.resource(name))
	}
	for _, host := range s.hosts() {
		args = append(args, "--add-host", host)
	}
	return append(args, "--network-alias", mainService)
}

// volumeArgs are the flags for the volumes of main.
func (s *Services) volumeArgs() (args []string) {
	for _, inside := range slices.Sorted(maps.Keys(s.compose.volumes)) {
		args = append(args, "--mount", "type=volume,source="+s.resource(s.compose.volumes[inside])+",destination="+inside)
	}
	return args
}

// join connects a created container to the engine's own network, if the container may reach everything
// and the services may not.
func (s *Services) join(ctx context.Context, name, network string) error {
	if !s.internal || network == NetworkNone {
		return nil
	}
	_, err := s.engine.run(ctx, "network", "connect", usualNetwork, name)
	return err
}
