package container

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/container/inside"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// labelMachine is the label of the containers of a daemon with the machine of the process that has
// made one, since a daemon may serve several machines.
const labelMachine = "dev.evalrun.machine"

// Daemon is a Docker daemon in whose containers rollouts run.
type Daemon struct {
	*docker.Client
	// bridged says that the daemon has its usual network.
	bridged bool
	// filling is held by who looks for a volume of programs, or fills one; the others find it then.
	filling sync.Mutex
}

var openedDaemon struct {
	sync.Mutex
	*Daemon
}

// OpenDaemon finds the daemon that the environment names. The first time it removes the containers
// that killed processes of this machine have left there. The error says what to do.
func OpenDaemon(ctx context.Context) (*Daemon, error) {
	openedDaemon.Lock()
	defer openedDaemon.Unlock()
	if openedDaemon.Daemon != nil {
		return openedDaemon.Daemon, nil
	}
	if owner(os.Getpid()) == "" {
		return nil, fmt.Errorf("isolation \"docker\" can be had on Linux and macOS, and this is %s: what a killed process leaves would not be found",
			runtime.GOOS)
	}
	client, err := docker.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("isolation \"docker\" cannot be had: %w", err)
	}
	d := &Daemon{Client: client}
	if _, err := d.Sweep(ctx); err != nil {
		return nil, err
	}
	if d.bridged, err = d.HasNetwork(ctx, NetworkBridge); err != nil {
		return nil, err
	}
	openedDaemon.Daemon = d
	return d, nil
}

// Sweep removes the containers whose evalrun is gone, and the networks and volumes of such, also the volumes
// that such an evalrun has not filled. It returns how many containers these were.
func (d *Daemon) Sweep(ctx context.Context) (removed int, err error) {
	removed, err = d.removeAll(ctx, labelOwner, isLeft)
	if err != nil {
		err = fmt.Errorf("remove from the Docker daemon what a killed evalrun has left: %w", err)
	}
	return removed, errors.Join(err, d.sweepPrograms(ctx))
}

// removeAll removes the containers, networks and volumes that have a label, and of which those says so. It
// returns how many containers these were.
func (d *Daemon) removeAll(ctx context.Context, label string, those func(labels map[string]string) bool) (containers int, err error) {
	for _, k := range []struct {
		kind   string
		list   func(context.Context, string) (map[string]map[string]string, error)
		remove func(context.Context, string) error
	}{{"container", d.List, d.Remove}, {"network", d.ListNetworks, d.RemoveNetwork}, {"volume", d.ListVolumes, d.RemoveVolume}} {
		found, failed := k.list(ctx, label)
		if failed != nil {
			return containers, errors.Join(err, fmt.Errorf("list each %s of the Docker daemon: %w", k.kind, failed))
		}
		for name, labels := range found {
			if !those(labels) {
				continue
			}
			if failed := k.remove(ctx, name); failed != nil {
				err = errors.Join(err, fmt.Errorf("remove the %s %s: %w", k.kind, name, failed))
			} else if k.kind == "container" {
				containers++
			}
		}
	}
	return containers, err
}

// isLeft reports whether labels are those of a container that a dead process of this machine has
// made.
func isLeft(labels map[string]string) bool {
	return labels[labelRollout] != "" && labels[labelMachine] == machine() && isGone(labels[labelOwner])
}

// machine is the id of this machine, which it keeps when it starts anew. Who may see labels need not
// know more of it.
func machine() string {
	if id := machineID(); id != "" {
		return short(id)
	}
	name, _ := os.Hostname()
	return "host-" + short(name)
}

// RemoteSpec says what a container of a daemon is made of.
type RemoteSpec struct {
	// Rollout is the marker of the rollout. Part distinguishes the containers of one rollout.
	Rollout, Part string
	// Image is the digest of an image of the daemon.
	Image, Workdir string
	// Volumes are the paths of the image's volumes.
	Volumes []string
	Limits  Limits
	// Executable is the evalrun program, beside which its program for containers is.
	Executable string
	// From is the folder in which Keep has left what an earlier container of the image had changed;
	// empty if the container begins with the image alone.
	From string
	// Public says that most processes of the container may reach the network.
	Public bool
}

// Remote is a container of a daemon. It is made when something is put into it, and keeps its files
// until Remove, while its processes end with each Leave.
type Remote struct {
	daemon *Daemon
	spec   RemoteSpec

	// services run beside the container; nil if it stands alone.
	services *DaemonServices

	mu      sync.Mutex
	id      string // empty while there is none
	network string
	places  []sandbox.Bind
	// programs are the places of what its volume of programs has.
	programs []string
	// used says that the container has more than its image.
	used   bool
	bridge *bridge // nil while there is none
	// starved says that the kernel has ended a process for want of memory, since the last Enter.
	starved bool
}

// NewRemote describes a container that is yet to be made.
func (d *Daemon) NewRemote(s RemoteSpec) *Remote { return &Remote{daemon: d, spec: s} }

// Join puts the container beside services, which are about to start. No process has run in it.
func (r *Remote) Join(ctx context.Context, s *DaemonServices) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services = s
	r.spec.Volumes = slices.DeleteFunc(slices.Clone(r.spec.Volumes), func(at string) bool {
		_, shared := s.spec.Compose.volumes[at]
		return shared
	})
	if r.id == "" {
		return nil
	}
	return r.remove(ctx) // it was only looked into
}

// Arch is the architecture of the daemon's containers, as Go names it.
func (r *Remote) Arch() string {
	_, arch, _ := strings.Cut(r.daemon.Platform, "/")
	return arch
}

// remoteTimeout is how long the daemon may take to start or to end a container, or for one archive.
const remoteTimeout = 10 * time.Minute

func withinTime() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), remoteTimeout,
		fmt.Errorf("the Docker daemon took longer than %v", remoteTimeout))
}

// network is the network of a container that may reach everything, or nothing.
func (d *Daemon) network(public bool) string {
	switch {
	case !public:
		return NetworkNone
	case d.bridged:
		return NetworkBridge
	}
	return NetworkHost
}

// Switches reports whether a container can be kept off the network for some of its processes alone.
func (d *Daemon) Switches() bool { return d.bridged }

// create makes the container if there is none, with programs of this machine. One that was only looked into is
// made anew if it has none of them.
func (r *Remote) create(ctx context.Context, network string, programs ...sandbox.Bind) error {
	if r.id != "" {
		if !slices.ContainsFunc(programs, func(b sandbox.Bind) bool { return !slices.Contains(r.programs, b.Inside) }) {
			return nil
		}
		if r.used {
			return fault.New(fault.Setup, "the agent has another installation than when the container was made; run the rollout again")
		}
		if err := r.remove(ctx); err != nil {
			return err
		}
	}
	if own, err := ownPrograms.find(r.spec.Executable, r.daemon.Platform); err == nil {
		programs = append([]sandbox.Bind{{Host: own, Inside: sandbox.InsideExecutable}}, programs...)
	}
	name := containerName(r.spec.Rollout + r.spec.Part)
	spec := docker.Spec{Image: r.spec.Image, User: "0:0", WorkingDir: r.spec.Workdir,
		// It reaps what the processes leave behind. kill -1 ends its sleep, but not itself.
		Entrypoint: []string{"/bin/sh", "-c", "while :; do sleep 3600 & wait; done"},
		Labels:     ownLabels(r.spec.Rollout), HostConfig: r.spec.Limits.hostConfig()}
	spec.Healthcheck.Test = []string{"NONE"}
	spec.HostConfig.NetworkMode = network
	if len(programs) > 0 {
		m, err := r.daemon.programs(ctx, r.spec.Image, programs)
		if err != nil {
			return err
		}
		spec.HostConfig.Mounts = append(spec.HostConfig.Mounts, m)
	}
	for _, at := range r.spec.Volumes {
		m := docker.Mount{Type: "volume", Target: at}
		m.VolumeOptions.Labels = spec.Labels
		spec.HostConfig.Mounts = append(spec.HostConfig.Mounts, m)
	}
	if r.services != nil {
		r.services.admit(&spec)
	}
	id, err := r.daemon.Create(ctx, name, spec)
	if docker.IsStatus(err, http.StatusConflict) {
		if err := r.takeName(ctx, name); err != nil {
			return err
		}
		id, err = r.daemon.Create(ctx, name, spec)
	}
	if err == nil && r.services != nil {
		if err = r.services.connectMain(ctx, id, network); err != nil {
			err = errors.Join(err, r.daemon.Remove(ctx, id))
		}
	}
	if err != nil {
		return fmt.Errorf("create a container: %w", err)
	}
	r.id, r.network, r.used, r.programs = id, network, false, nil
	for _, b := range programs {
		r.programs = append(r.programs, b.Inside)
	}
	return nil
}

// begin makes the container if there is none, with all that it begins with.
func (r *Remote) begin(ctx context.Context, network string, programs ...sandbox.Bind) error {
	if err := r.create(ctx, network, programs...); err != nil || r.used {
		return err
	}
	r.used = true
	if r.spec.From == "" {
		return nil
	}
	if err := r.restore(ctx); err != nil {
		return errors.Join(err, r.remove(ctx))
	}
	return nil
}

// ownLabels are the labels of what a rollout has in a daemon.
func ownLabels(rollout string) map[string]string {
	own := map[string]string{labelMachine: machine()}
	for _, l := range labels(rollout) {
		key, value, _ := strings.Cut(l, "=")
		own[key] = value
	}
	return own
}

// takeName removes the container of an earlier holder of the rollout. The caller holds the rollout,
// so nobody works in it any more.
func (r *Remote) takeName(ctx context.Context, name string) error {
	there, err := r.daemon.Inspect(ctx, name)
	if docker.IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if there.Config.Labels[labelRollout] != r.spec.Rollout {
		return fmt.Errorf("the Docker daemon has a container %s that is not evalrun's; rename or remove it", name)
	}
	return r.daemon.Remove(ctx, there.ID)
}

// hostConfig are the limits in the words of the daemon.
func (l Limits) hostConfig() docker.HostConfig {
	h := docker.HostConfig{Memory: int64(l.MemoryMB) << 20, MemorySwap: int64(l.MemoryMB) << 20,
		NanoCpus: int64(l.CPUs * 1e9), PidsLimit: int64(l.PIDs)}
	if l.GPUs > 0 {
		h.DeviceRequests = []docker.DeviceRequest{{Count: l.GPUs, Capabilities: [][]string{{"gpu"}}}}
	}
	return h
}

// Enter implements [sandbox.Remote].
func (r *Remote) Enter(cfg *sandbox.Config) (sandbox.RemoteProgram, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := withinTime()
	defer cancel()
	if err := r.enter(ctx, cfg); err != nil {
		return sandbox.RemoteProgram{}, errors.Join(r.daemon.fault(err), r.closeBridge())
	}
	at, err := json.Marshal(r.daemon.Endpoint())
	if err != nil {
		return sandbox.RemoteProgram{}, errors.Join(err, r.closeBridge())
	}
	return sandbox.RemoteProgram{Command: []string{r.spec.Executable, execCommand, string(at), r.id}, Env: forConnection(),
		Connect: []string{sandbox.InsideExecutable, inside.Connect},
		Await:   []string{sandbox.InsideExecutable, inside.Await}}, nil
}

func (r *Remote) enter(ctx context.Context, cfg *sandbox.Config) error {
	network := r.daemon.network(cfg.Network)
	needs := len(cfg.Forwards)+len(cfg.Exposes)+len(cfg.Spawns)+len(cfg.Own) > 0
	if needs && network == NetworkHost {
		return fault.New(fault.NotRunnable,
			"the Docker daemon has no network of its own (bridge), so a container with a network has no loopback of its own, on which the agent could reach evalrun; start the daemon with its bridge, or give the task no network")
	}
	var programs, others []sandbox.Bind
	for _, b := range cfg.Binds {
		if isProgram(b) {
			programs = append(programs, b)
		} else {
			others = append(others, b)
		}
	}
	if err := r.begin(ctx, network, programs...); err != nil {
		return err
	}
	if needs {
		if err := r.equipped(); err != nil {
			return err
		}
	}
	if r.network != network {
		if err := r.daemon.Kill(ctx, r.id); err != nil { // Keep has left it running
			return fmt.Errorf("end the container to change its network: %w", err)
		}
		if err := r.move(ctx, network); err != nil {
			return fmt.Errorf("change the network of the container: %w", err)
		}
		r.network = network
	}
	if err := r.daemon.Start(ctx, r.id); err != nil {
		return fmt.Errorf("start the container, whose image needs /bin/sh: %w", err)
	}
	if err := r.clear(ctx); err != nil {
		return err
	}
	owner, err := r.ownerOf(ctx, cfg)
	if err != nil {
		return err
	}
	r.places = others
	err = r.put(ctx, func(a *tar.Writer) error {
		for _, b := range others {
			own := docker.Root
			if slices.Contains(cfg.Own, b.Inside) {
				own = owner
			}
			if err := docker.AddTree(a, b.Host, inArchive(b.Inside), own); err != nil {
				return fmt.Errorf("%s: %w", b.Inside, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(cfg.Forwards) > 0 {
		r.bridge, err = r.openBridge(ctx, cfg.Forwards)
	}
	return err
}

// move takes the container from its network to another. Beside services it keeps theirs.
func (r *Remote) move(ctx context.Context, network string) error {
	if r.services != nil {
		return r.services.moveMain(ctx, r.id, network)
	}
	err := r.daemon.Disconnect(ctx, r.id, r.network)
	if err == nil {
		err = r.daemon.Connect(ctx, r.id, network)
	}
	return err
}

// equipped returns why the container has not evalrun's program for containers, which opens ways to this machine.
func (r *Remote) equipped() error {
	if slices.Contains(r.programs, sandbox.InsideExecutable) {
		return nil
	}
	return fault.Newf(fault.NotRunnable, "%v", r.daemon.CanEquip(r.spec.Executable))
}

// CanEquip returns why the daemon's containers cannot have evalrun's program, so that agents which
// need a way to this machine cannot run there. executable is evalrun; empty for this process.
func (d *Daemon) CanEquip(executable string) error {
	_, err := ownPrograms.find(executable, d.Platform)
	return err
}

// ownerOf finds the numbers of the user of the processes, who gets cfg.Own. The daemon knows the
// users of an image, evalrun does not.
func (r *Remote) ownerOf(ctx context.Context, cfg *sandbox.Config) (docker.Owner, error) {
	if len(cfg.Own) == 0 || cfg.User == "" || cfg.User == "root" {
		return docker.Root, nil
	}
	var said, failed beginning
	status, err := r.daemon.Run(ctx, r.id, docker.Exec{Cmd: []string{sandbox.InsideExecutable, inside.Owner},
		User: cfg.User, WorkingDir: "/"}, docker.Streams{Out: &said, Err: &failed})
	var o docker.Owner
	if err == nil && status == 0 {
		_, err = fmt.Sscanf(said.String(), "%d %d", &o.UID, &o.GID)
	} else if err == nil {
		err = fmt.Errorf("exit status %d: %s", status, failed.String())
	}
	if err != nil {
		return o, fault.Newf(fault.Setup, "the user %q of the container: %v", cfg.User, err)
	}
	return o, nil
}

func (r *Remote) closeBridge() error {
	err := r.bridge.close()
	r.bridge = nil
	return err
}

// beginning is the first of what a program in the container prints. The agent may have put any program
// in the place of that one, which may print without end.
type beginning struct{ text []byte }

func (s *beginning) Write(p []byte) (int, error) {
	s.text = append(s.text, p[:min(len(p), 4000-len(s.text))]...)
	return len(p), nil
}

func (s *beginning) String() string { return strings.TrimSpace(string(s.text)) }

// clear removes what was brought for the process before, such as the solution.
func (r *Remote) clear(ctx context.Context) error {
	if len(r.places) == 0 {
		return nil
	}
	args := []string{"/bin/rm", "-rf", "--"}
	for _, b := range r.places {
		args = append(args, path.Clean(b.Inside))
	}
	var said beginning
	status, err := r.daemon.Run(ctx, r.id, docker.Exec{Cmd: args, User: "0:0", WorkingDir: "/"}, docker.Streams{Out: &said, Err: &said})
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d: %s", status, said.String())
	}
	if err != nil {
		return fmt.Errorf("%s in the container: %w", strings.Join(args, " "), err)
	}
	r.places = nil
	return nil
}

// Put copies a file or a folder of this machine to a path of the container, to what is there. No
// process may run in it.
func (r *Remote) Put(source, at string, public bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := withinTime()
	defer cancel()
	if err := r.begin(ctx, r.daemon.network(public)); err != nil {
		return err
	}
	return r.daemon.fault(r.put(ctx, func(a *tar.Writer) error { return docker.AddTree(a, source, inArchive(at), docker.Root) }))
}

// fault is a fault of the environment if the daemon's machine has no disk or memory left, otherwise the error.
func (d *Daemon) fault(err error) error {
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // which is of this machine
		if short := d.IfShort(err.Error()); short != "" {
			return fault.Newf(fault.Setup, "%v%s", err, short)
		}
	}
	return err
}

func (r *Remote) put(ctx context.Context, what func(*tar.Writer) error) error {
	return r.daemon.putTrees(ctx, r.id, "/", what)
}

// inArchive is a path of a container as a name in an archive.
func inArchive(at string) string { return strings.TrimPrefix(path.Clean(at), "/") }

// putTrees puts into a folder of a container what a function adds to an archive.
func (d *Daemon) putTrees(ctx context.Context, id, folder string, what func(*tar.Writer) error) error {
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		a := tar.NewWriter(out)
		err := errors.Join(what(a), a.Close())
		out.CloseWithError(err)
		written <- err
	}()
	err := d.Put(ctx, id, folder, in)
	_ = in.CloseWithError(io.ErrClosedPipe)
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("put files into the container: %w", err)
	}
	return nil
}

// maxOut is how much is taken out of a container at once.
const maxOut = 8 << 30

// Get copies a file or a folder of the container to a path of this machine, in place of what is
// there. It is no error if the container has no such path: nothing is there then.
func (r *Remote) Get(at, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.RemoveAll(to); err != nil || r.id == "" && r.spec.From == "" {
		return err
	}
	ctx, cancel := withinTime()
	defer cancel()
	if err := r.begin(ctx, r.daemon.network(r.spec.Public)); err != nil {
		return err
	}
	return r.get(ctx, at, to)
}

// inImages remembers what images have, by their digests and the paths.
var inImages sync.Map

// Has reports whether the image has a file or folder.
func (r *Remote) Has(at string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.spec.Image + " " + at
	if has, ok := inImages.Load(key); ok {
		return has.(bool), nil //nolint:forcetypeassert // stored below
	}
	ctx, cancel := withinTime()
	defer cancel()
	if err := r.create(ctx, r.daemon.network(r.spec.Public)); err != nil {
		return false, err
	}
	archive, err := r.daemon.Get(ctx, r.id, at)
	if err == nil {
		err = archive.Close()
	} else if !docker.IsMissing(err) {
		return false, fmt.Errorf("look for %s in the image: %w", at, err)
	}
	has := err == nil
	if !r.used { // it is still as the image is
		inImages.Store(key, has)
	}
	return has, nil
}

func (r *Remote) get(ctx context.Context, at, to string) error {
	if path.Clean(at) == "/" {
		return fault.New(fault.DiskLimit, "the whole root of a container is not taken out; name the folders that are needed")
	}
	between := to + ".part"
	if err := errors.Join(os.RemoveAll(between), os.MkdirAll(between, 0o700)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(between) }() // it is removed again before the next use
	archive, err := r.daemon.Get(ctx, r.id, at)
	if docker.IsMissing(err) {
		return nil
	}
	if err == nil {
		err = errors.Join(docker.Extract(archive, between, maxOut), archive.Close())
		if err == nil {
			return os.Rename(filepath.Join(between, docker.Extracted), to)
		}
	}
	switch {
	case errors.Is(err, docker.ErrTooLarge):
		return fault.Newf(fault.DiskLimit, "%s of the container is larger than %d MB, and is not taken out", at, maxOut>>20)
	case err != nil:
		return fmt.Errorf("take %s out of the container: %w", at, err)
	}
	return nil
}

// Written is how many bytes the container has written over its image, without its volumes; 0 if the daemon does not
// tell, which is no fault of whoever works there.
func (r *Remote) Written(ctx context.Context) int64 {
	r.mu.Lock()
	id := r.id
	r.mu.Unlock()
	if id == "" {
		return 0
	}
	n, _ := r.daemon.Written(ctx, id)
	return n
}

// Leave implements [sandbox.Remote].
func (r *Remote) Leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" {
		return nil
	}
	ctx, cancel := withinTime()
	defer cancel()
	err := r.closeBridge()
	is, failed := r.daemon.Inspect(ctx, r.id)
	if failed == nil && isKilled(is.State) {
		failed = errors.New("somebody else has ended it and all its processes, as docker kill does, docker stop, and a daemon that starts anew")
	}
	if failed == nil {
		failed = r.daemon.Kill(ctx, r.id)
	}
	if failed == nil { // the daemon tells it when all have ended
		is, failed = r.daemon.Inspect(ctx, r.id)
		r.starved = is.State.OOMKilled
	}
	if failed != nil {
		return &sandbox.LostError{Err: fmt.Errorf("end the processes of the container: %w", failed)}
	}
	for _, b := range r.places {
		if b.Writable {
			err = errors.Join(err, r.back(ctx, b))
		}
	}
	return err
}

// MemoryNote is added to a message about the end of the processes; see [sandbox.Exit.MemoryNote].
func (r *Remote) MemoryNote() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.starved {
		return ""
	}
	return fmt.Sprintf("; the system ended processes of the container, because they needed more memory than the task allows "+
		"(environment.memory_mb, %d; 0 is no limit), or than the machine of the Docker daemon has", r.spec.Limits.MemoryMB)
}

// isKilled reports whether a container that evalrun has started was ended from outside: its first process by
// SIGKILL, which no process of the container can send it, though not for want of memory; or together
// with the daemon. Where no process can be started, the first one ends with a status of its shell.
func isKilled(s docker.State) bool {
	const withDaemon = 255
	return !s.Running && !s.OOMKilled && (s.ExitCode == statusKilled || s.ExitCode == withDaemon)
}

// back replaces the content of a folder of this machine by what the container has at its place.
func (r *Remote) back(ctx context.Context, b sandbox.Bind) error {
	got := filepath.Clean(b.Host) + ".got"
	err := errors.Join(os.RemoveAll(got), r.get(ctx, b.Inside, got))
	info, missing := os.Lstat(got)
	if err == nil && (missing != nil || !info.IsDir()) { // it was removed, or is no folder any more
		err = errors.Join(os.RemoveAll(got), os.Mkdir(got, 0o755))
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(b.Host), os.Rename(got, b.Host))
}

// Remove removes the container, if there is one, with everything in it.
func (r *Remote) Remove(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" {
		return nil
	}
	return r.remove(ctx)
}

func (r *Remote) remove(ctx context.Context) error {
	err := errors.Join(r.closeBridge(), r.daemon.Remove(ctx, r.id))
	if err == nil {
		r.id, r.places, r.programs = "", nil, nil
	}
	return err
}

// forConnection are the variables that a connection with the daemon may need: those of ssh.
func forConnection() (env []string) {
	for _, name := range []string{"PATH", "HOME", "SSH_AUTH_SOCK"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// execCommand is the hidden command that stands for a process in a container of a daemon.
const execCommand = "container-exec"

// execFailed is its exit status if the daemon has failed.
const execFailed = 125

// ExecMain must be called first in main of a program that is given as [RemoteSpec].Executable. If
// this process was started for a command in a container of a daemon, ExecMain runs it there and does
// not return.
func ExecMain() {
	if len(os.Args) != 4 || os.Args[1] != execCommand {
		return
	}
	var c sandbox.RemoteCommand
	var at docker.Endpoint
	err := errors.Join(json.Unmarshal([]byte(os.Getenv(sandbox.RemoteVar)), &c), json.Unmarshal([]byte(os.Args[2]), &at))
	status := execFailed
	if err == nil {
		status, err = execIn(at, os.Args[3], c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evalrun: the Docker daemon:", err)
		status = execFailed
	}
	os.Exit(status)
}

// execIn runs a command in a container. At SIGTERM it asks the processes of the command's scope, or
// all processes there, to end: the daemon sends signals only to a container's first.
func execIn(at docker.Endpoint, id string, c sandbox.RemoteCommand) (int, error) {
	ctx := context.Background()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	d, err := docker.OpenAt(ctx, at)
	if err != nil {
		return 0, err
	}
	go func() {
		<-terminated
		ask := docker.Exec{Cmd: []string{"/bin/sh", "-c", "kill -TERM -1"}, User: "0:0", WorkingDir: "/"}
		if c.Scope != "" {
			ask.Cmd = []string{sandbox.InsideExecutable, inside.End, c.Scope}
		}
		_, _ = d.Run(ctx, id, ask, docker.Streams{Out: io.Discard, Err: io.Discard}) // SIGKILL follows
	}()
	status, err := d.Run(ctx, id, docker.Exec{Cmd: c.Args, Env: c.Env, User: c.User, WorkingDir: c.Dir},
		docker.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if err == nil && status == statusKilled {
		awaitEnd(ctx, d, id)
	}
	return status, err
}

// statusKilled is the exit status of a process that SIGKILL has ended.
const statusKilled = 137

// awaitEnd waits for the end of a container in which nothing can be started any more: a program that was killed
// may have been killed together with its container, of whose end the daemon tells later. Leave asks for it.
func awaitEnd(ctx context.Context, d *docker.Client, id string) {
	status, err := d.Run(ctx, id, docker.Exec{Cmd: []string{"/bin/sh", "-c", ":"}, User: "0:0", WorkingDir: "/"},
		docker.Streams{Out: io.Discard, Err: io.Discard})
	if err == nil && status == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // nothing can be started in a full container either
	defer cancel()
	_ = d.Await(ctx, id) // Leave asks what has become of it, also if this fails
}
