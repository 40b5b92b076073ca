package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// Spec says what a container is made of.
type Spec struct {
	// Rollout is the marker of the rollout (see [sandbox.MarkerVar]), which has one container at a
	// time.
	Rollout string
	// Network is one of NetworkNone, NetworkBridge and NetworkHost.
	Network string
	Limits  Limits
	// Executable is the evalrun program.
	Executable string
	// Services run beside the container; nil if it stands alone.
	Services *Services
}

// Limits are what a container may use; 0 is no limit.
type Limits struct {
	MemoryMB int
	CPUs     float64
	PIDs     int
	// GPUs is how many of the machine's GPUs the container gets.
	GPUs int
}

// Container is a container of podman in which processes of a rollout live. It is made when the
// first process starts, and removed when that process has ended.
type Container struct {
	engine *Engine
	spec   Spec
	name   string

	mu   sync.Mutex
	id   string   // in the engine; empty before it was created
	dir  string   // of the socket, on this machine
	line *os.File // to the first process; nil before there is one
	root *sandbox.Root
}

// startTimeout is how long a container may take from its creation until its first process answers.
const startTimeout = 2 * time.Minute

// New describes a container that is yet to be made.
func (e *Engine) New(spec Spec) *Container {
	return &Container{engine: e, spec: spec, name: containerName(spec.Rollout)}
}

// Name is the name of the container in its engine.
func (c *Container) Name() string { return c.name }

// Enter implements [sandbox.Space].
func (c *Container) Enter(cfg *sandbox.Config) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == nil {
		if err := c.create(cfg); err != nil {
			return nil, errors.Join(err, c.remove(context.Background()))
		}
	}
	return duplicate(c.line)
}

// create makes and starts the container, and waits for its first process.
func (c *Container) create(cfg *sandbox.Config) (err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout,
		fmt.Errorf("the container did not start within %v", startTimeout))
	defer cancel()
	if c.dir, err = newFolder(); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unixpacket",
		&net.UnixAddr{Name: filepath.Join(c.dir, filepath.Base(sandbox.InsideLine)), Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // one process connects, and nobody else
	if err := c.start(ctx, cfg); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := listener.SetDeadline(deadline); err != nil {
		return err
	}
	accepted := make(chan struct{})
	defer close(accepted)
	go c.watch(ctx, listener, accepted)
	conn, err := listener.AcceptUnix()
	if err != nil {
		return fmt.Errorf("the container has ended before its first process answered%s", c.lastWords(ctx))
	}
	defer func() { _ = conn.Close() }() // line is a copy
	c.line, err = conn.File()
	return err
}

// watch closes the listener when the container ends before its first process has connected.
func (c *Container) watch(ctx context.Context, listener net.Listener, accepted <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-accepted
		cancel()
	}()
	if _, err := c.engine.run(ctx, "wait", c.id); err == nil {
		_ = listener.Close()
	}
}

// lastWords returns the output of a container that has ended too early.
func (c *Container) lastWords(ctx context.Context) string {
	return c.engine.lastWords(ctx, c.id)
}

// lastWords returns the last line that a container has printed.
func (e *Engine) lastWords(ctx context.Context, id string) string {
	out, err := e.start(ctx, "/bin/sh", "logs", append([]string{"-c", `exec "$0" "$@" 2>&1`, e.path}, "logs", id)...)
	if err != nil || out == "" {
		return ""
	}
	return ": " + lastLine(out)
}

// start mounts the root, creates the container and starts it. If one is there already, an earlier
// holder has left it.
func (c *Container) start(ctx context.Context, cfg *sandbox.Config) error {
	if cfg.Root == nil {
		return errors.New("a container needs the root of an image")
	}
	if mountOf(cfg.Root.Merged) != "" {
		if err := errors.Join(c.engine.removeContainer(ctx, c.name), unmount(cfg.Root.Merged)); err != nil {
			return err
		}
	}
	c.root = cfg.Root
	if err := c.root.Mount(mountSource()); err != nil {
		return err
	}
	args, err := c.createArgs(cfg)
	if err != nil {
		return err
	}
	c.id, err = c.engine.run(ctx, args...)
	if says(err, "already in use") {
		if err := c.engine.removeContainer(ctx, c.name); err != nil {
			return err
		}
		c.id, err = c.engine.run(ctx, args...)
	}
	if s := c.spec.Services; err == nil && s != nil {
		err = s.join(ctx, c.id, c.spec.Network)
	}
	if err == nil {
		_, err = c.engine.run(ctx, "start", c.id)
	}
	return err
}

// createArgs are the arguments with which the engine creates the container.
func (c *Container) createArgs(cfg *sandbox.Config) ([]string, error) {
	s := &c.spec
	args := []string{"create", "--name", c.name, "--user", "0:0", "--workdir", "/", "--systemd", "false"}
	for _, l := range labels(s.Rollout) {
		args = append(args, "--label", l)
	}
	if s.Services != nil {
		args = append(args, s.Services.networkArgs()...)
	} else {
		args = append(args, "--network", s.Network)
	}
	args = append(args, s.Limits.args()...)
	mounts, err := c.mounts(cfg)
	if err == nil {
		err = c.makePlaces(mounts)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		args = append(args, "--mount", m.flag())
	}
	if s.Services != nil {
		args = append(args, s.Services.volumeArgs()...)
	}
	return append(append(args, "--rootfs", cfg.Root.Merged), sandbox.HoldArgs()...), nil
}

// args are the flags for limits.
func (l Limits) args() (args []string) {
	if l.MemoryMB > 0 {
		size := strconv.Itoa(l.MemoryMB) + "m"
		args = append(args, "--memory", size, "--memory-swap", size)
	}
	if l.CPUs > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(l.CPUs, 'f', -1, 64))
	}
	if l.PIDs > 0 {
		args = append(args, "--pids-limit", strconv.Itoa(l.PIDs))
	}
	for i := range l.GPUs { // by the names that NVIDIA's toolkit gives (CDI)
		args = append(args, "--device", "nvidia.com/gpu="+strconv.Itoa(i))
	}
	return args
}

// mount is a file or folder of this machine in a container.
type mount struct {
	host, inside string
	writable     bool
}

func (m mount) flag() string {
	flag := "type=bind,source=" + m.host + ",destination=" + m.inside
	if !m.writable {
		flag += ",readonly"
	}
	return flag
}

// mounts are the files of this machine that are in the container: the way to evalrun, and what the
// config gives.
func (c *Container) mounts(cfg *sandbox.Config) ([]mount, error) {
	mounts := []mount{{c.dir, filepath.Dir(sandbox.InsideLine), false},
		{c.spec.Executable, sandbox.InsideExecutable, false}}
	for _, v := range cfg.Visible {
		real, err := filepath.EvalSymlinks(v)
		if err != nil {
			return nil, fmt.Errorf("visible path: %w", err)
		}
		mounts = append(mounts, mount{real, real, false})
		if v = filepath.Clean(v); v != real {
			mounts = append(mounts, mount{real, v, false})
		}
	}
	for _, b := range cfg.Binds {
		mounts = append(mounts, mount{b.Host, filepath.Clean(b.Inside), b.Writable})
	}
	seen := map[string]bool{}
	var out []mount
	for _, m := range mounts {
		if strings.ContainsAny(m.host+m.inside, ",\"\n") {
			return nil, fmt.Errorf("%s cannot be given to a container: its name has a comma, a quote or a line break", m.host)
		}
		if !seen[m.inside] {
			out = append(out, m)
		}
		seen[m.inside] = true
	}
	return out, nil
}

// makePlaces makes the places of what is mounted below the folder of the socket, because the engine
// cannot make any there.
func (c *Container) makePlaces(mounts []mount) error {
	for _, m := range mounts {
		below, ok := strings.CutPrefix(m.inside, filepath.Dir(sandbox.InsideLine)+"/")
		if !ok {
			continue
		}
		info, err := os.Stat(m.host)
		if err != nil {
			return fmt.Errorf("visible path: %w", err)
		}
		place := filepath.Join(c.dir, below)
		if info.IsDir() {
			err = os.MkdirAll(place, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(place), 0o755); err == nil {
			err = os.WriteFile(place, nil, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Leave implements [sandbox.Space]: it ends every process in the container and removes it.
func (c *Container) Leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(context.Background())
}

// remove removes everything that create has made.
func (c *Container) remove(ctx context.Context) error {
	if c.dir == "" {
		return nil
	}
	var err error
	if c.id != "" { // by now another holder may have a container of this name
		err = c.engine.removeContainer(ctx, c.id)
	}
	if c.line != nil {
		_ = c.line.Close() // after the container: podman is disturbed by one that ends by itself meanwhile
		c.line = nil
	}
	if c.root != nil && mountOf(c.root.Merged) == mountSource() {
		err = errors.Join(err, unmount(c.root.Merged))
	}
	err = errors.Join(err, os.RemoveAll(c.dir))
	c.dir, c.id, c.root = "", "", nil
	return err
}

// removeContainer removes a container with its anonymous volumes. A missing container is no error.
func (e *Engine) removeContainer(ctx context.Context, name string) error {
	var err error
	for range 5 { // a container that ends by itself at this moment has a state in between
		if _, err = e.run(ctx, "rm", "-f", "-v", "-i", "-t", "0", name); !says(err, "state improper") {
			break
		}
	}
	if says(err, "no such container", "already in progress") {
		return nil
	}
	return err
}

// duplicate returns another file for the same connection.
func duplicate(f *os.File) (copied *os.File, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			copied = os.NewFile(uintptr(n), f.Name())
		}
	})
	return copied, errors.Join(cerr, err)
}
