// Package sandbox runs the processes of a rollout. It starts them in a process group of their own,
// ends them, and finds those that a crashed evalrun left behind.
//
// [Run] is all that most callers need. A [Config] says what a process sees of the machine, and a
// [Setup] what runs in the space before it; both need the program to call [InitMain] first. Every
// process bears a marker in its environment (see [Command]), and so does what it starts. By the
// marker [Sweep] finds the processes of an evalrun that is gone. The package knows nothing of
// agents, tasks and rollouts.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// MarkerVar is the environment variable that holds the marker of a process. A process that clears
// its environment and leaves the process group escapes, unless it is in a PID namespace.
const MarkerVar = "EVALRUN_ROLLOUT"

// WorkerVar is a second variable for a marker. A process that serves several segments has a marker
// of its own; what it starts for a segment has that of the segment's rollout in MarkerVar, and that
// of the process itself here.
const WorkerVar = "EVALRUN_WORKER"

// DefaultGrace is how long a process may take to end after SIGTERM.
const DefaultGrace = 2 * time.Second

// Command is a process to start.
type Command struct {
	// Marker is the marker of the process: that of its rollout, or one that no rollout has if the
	// process serves several.
	Marker string
	// Path is the program, absolute or relative to Dir. In a sandbox, a name without a slash is looked
	// up in the PATH of Env. Args are its arguments; Args[0] is its name.
	Path string
	Args []string
	Dir  string
	// Env is the whole environment except the marker. Of two entries with one name the later counts.
	Env []string
	// Stdin is the input of the process. It is no error if the process does not read it.
	Stdin []byte
	// Stdout and Stderr receive the output of the process; nil discards it. Neither is called
	// concurrently with itself, or after Wait. An error of either ends the process and becomes
	// Exit.Ended.
	Stdout io.Writer
	Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL; 0 means DefaultGrace.
	Grace time.Duration
	// Shared says that other processes bear the same marker and are to live on. Processes that have
	// left the process's group are then ended with those.
	Shared bool
	// Tied ends the process by SIGKILL when evalrun itself has ended, however that was. Only Linux can
	// do that.
	Tied bool
	// Ended, if not nil, is called by Wait when the process has ended, before Wait looks for processes
	// that it left behind.
	Ended func()

	// Interactive leaves stdin and stdout to the caller, as Process.Stdin and Process.Stdout. Stdin
	// and Stdout above are not used.
	Interactive bool
	// Config says where the process lives; nil for this system as it is. Path, Args, Dir and Env are
	// as the process in the space must see them.
	Config *Config
	// Setup runs in the space before the process; see [Process.Ready].
	Setup *Setup
	// Executable is the program whose main calls [InitMain], from [os.Executable]. It starts and
	// ends the process if there is a Setup, a Forward, an Expose or a Spawn, and always in bwrap. A
	// process that ends by signal n is then reported with exit status 128+n.
	Executable string

	remote RemoteProgram // what Remote.Enter has returned
}

// needsInit reports whether the process is started by evalrun's own init.
func (c *Command) needsInit() bool {
	return c.Setup != nil ||
		c.Config != nil && (c.Config.Isolated() || len(c.Config.Forwards) > 0 || len(c.Config.entrances()) > 0)
}

// Exit describes how a process ended.
type Exit struct {
	// State is the state of the process as the system reports it.
	State *os.ProcessState
	// Ended is why we ended the process: the cause of the context, the reason given to End, or the
	// error of a writer. It is a [*SetupError] if the process was never started, and nil if it ended
	// by itself.
	Ended error
	// MemoryKills is how many of the processes the system has ended because they needed more memory
	// than Limits allow.
	MemoryKills int

	memory string // what a Remote says of that
}

// MemoryNote is added to a message about the end of a process. It is empty unless some of its
// processes were ended for want of memory.
func (e Exit) MemoryNote() string {
	if e.MemoryKills == 0 {
		return e.memory
	}
	return fmt.Sprintf("; the system ended %d of its processes, because they needed more memory than the task allows (environment.memory_mb)",
		e.MemoryKills)
}

// Process is a running process. It must be waited for.
type Process struct {
	// Stdin and Stdout are those of an interactive process. Closing Stdin is allowed. Stdout is to be
	// read until its end, which comes by the time at which Wait returns. Output from before then can
	// still be read.
	Stdin  io.WriteCloser
	Stdout io.Reader

	cmd     *exec.Cmd
	grace   time.Duration
	marker  string
	shared  bool
	ended   func()
	space   interface{ Leave() error } // the container of the process; nil if it has none
	started time.Time

	stdin, stdout, stderr *os.File      // our ends of the pipes
	exited                chan struct{} // closed when the process has ended, and on Linux is not yet reaped
	failed                chan error    // the errors of writers
	ending                chan ending   // the requests of End
	interactive           *interactive  // nil if it is not
	init                  *supervised   // nil if there is none
	group                 *cgroup.Group // nil if it has no limits
	copying               sync.WaitGroup
}

// Run starts a process and waits for it.
func Run(ctx context.Context, c Command) (Exit, error) {
	p, err := Start(c)
	if err != nil {
		return Exit{}, err
	}
	return p.Wait(ctx)
}

// Start starts a process. The error is that of the system call, as from [os.StartProcess], or
// describes an invalid Config. Ready and Wait report what goes wrong later in a space.
func Start(c Command) (*Process, error) {
	p := &Process{grace: c.Grace, marker: c.Marker, shared: c.Shared, ended: c.Ended, started: time.Now(),
		exited: make(chan struct{}), failed: make(chan error, 3), ending: make(chan ending, 1)}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	// The marker comes first so that it is found without reading all of an environment.
	c.Env = append([]string{MarkerVar + "=" + c.Marker}, without(c.Env, MarkerVar)...)
	if c.Config.Contained() {
		p.space = c.Config.Space
	} else if c.Config.IsRemote() {
		p.space = c.Config.Remote
	}
	var err error
	if p.cmd, p.init, err = c.prepare(); err != nil {
		return nil, err
	}
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.SysProcAttr.Setpgid = true

	var theirs [3]*os.File
	// The process gets files and not readers, so that exec starts no goroutines and its Wait waits
	// for nothing else.
	if theirs[0], p.stdin, err = os.Pipe(); err == nil {
		if p.stdout, theirs[1], err = os.Pipe(); err == nil {
			p.stderr, theirs[2], err = os.Pipe()
		}
	}
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
		err = p.start(&c)
	}
	for _, f := range append(theirs[:], p.cmd.ExtraFiles...) {
		_ = f.Close() // the process has its own copies; nil files answer with an error
	}
	if err != nil {
		p.closePipes()
		if p.space != nil && !p.shared {
			err = errors.Join(err, p.space.Leave())
		}
		return nil, err
	}
	go p.watch()
	p.attach(c)
	return p, nil
}

// start starts the process within its limits.
func (p *Process) start(c *Command) (err error) {
	if c.Config != nil && !c.Config.Contained() && !c.Config.IsRemote() { // an engine keeps the limits of its containers
		if p.group, err = cgroup.New(c.Marker, c.Config.Limits); err != nil {
			return fmt.Errorf("limit what the process uses: %w", err)
		}
	}
	if c.Config.Isolated() && !c.Config.IsRemote() {
		err = startIsolated(p.cmd, p.group)
	} else if c.Tied {
		err = startTied(p.cmd, p.group)
	} else {
		runtime.LockOSThread() // see cgroup.Group.Start
		err = p.group.Start(p.cmd, (*exec.Cmd).Start)
		runtime.UnlockOSThread()
	}
	if err != nil {
		return errors.Join(err, p.group.Remove())
	}
	return nil
}

// attach connects our ends of the pipes with what the caller gave.
func (p *Process) attach(c Command) {
	if c.Interactive {
		p.interactive = &interactive{r: &remainder{p.stdout, p.stdout, maxRest}}
		p.Stdin, p.Stdout = p.stdin, p.interactive
	} else {
		p.copying.Go(func() { p.feed(c.Stdin) })
		p.copying.Go(func() { p.copyOut(c.Stdout, p.stdout) })
	}
	if p.init == nil {
		p.copying.Go(func() { p.copyOut(c.Stderr, p.stderr) })
		return
	}
	said := &tail{w: c.Stderr} // bwrap writes its messages to stderr
	complete := make(chan struct{})
	p.copying.Go(func() {
		defer close(complete)
		p.copyOut(said, p.stderr)
	})
	p.copying.Go(func() { p.init.instruct(c.orders(p.grace)) })
	p.copying.Go(func() {
		p.init.follow(&c, func() string {
			<-complete
			return said.String()
		})
	})
	var log io.Writer
	if c.Setup != nil {
		log = c.Setup.Log
	}
	p.copying.Go(func() { p.copyOut(log, p.init.log) })
}

// prepare makes the command that is started on this system for c.
func (c *Command) prepare() (*exec.Cmd, *supervised, error) {
	if c.Config != nil {
		if err := c.Config.check(); err != nil {
			return nil, nil, err
		}
	}
	if !c.needsInit() {
		path := c.Path
		if c.Config != nil {
			var err error
			if path, err = lookPath(path, c.Env); err != nil {
				return nil, nil, err
			}
		}
		return &exec.Cmd{Path: path, Args: c.Args, Dir: c.Dir, Env: c.Env}, nil, nil
	}
	if !filepath.IsAbs(c.Executable) {
		return nil, nil, fmt.Errorf("the executable for the space, %q, must be an absolute path", c.Executable)
	}
	own, err := supervise()
	if err == nil {
		err = own.listen(c.Config.entrances())
	}
	if err != nil {
		own.close()
		return nil, nil, err
	}
	// Neither the init nor bwrap gets Env, which could make them load a library. The init gets it
	// through its pipe.
	cmd := &exec.Cmd{
		Path: c.Executable, Args: []string{c.Executable, initCommand}, Env: c.Env[:1:1], ExtraFiles: own.theirs,
	}
	for _, name := range []string{"GODEBUG", "GORACE"} { // the init is evalrun, so its runtime gets the same settings
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	if c.Config.Contained() {
		err = c.Config.enter(cmd, c.Shared)
	} else if c.Config.IsRemote() {
		c.remote, err = c.Config.Remote.Enter(c.Config)
	} else if c.Config.Isolated() {
		err = c.Config.wrap(cmd, c.Env)
	}
	if err != nil {
		own.close()
		return nil, nil, err
	}
	return cmd, own, nil
}

// PID is the id of the process, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ready waits until the process has been started in its space, after its setup. The error is a
// [*SetupError], or that of ctx. The process must be waited for in either case. Without a setup or
// a space it is ready at once.
func (p *Process) Ready(ctx context.Context) error {
	if p.init == nil {
		return nil
	}
	select {
	case <-p.init.ready:
		if p.init.err != nil {
			return p.init.err
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
