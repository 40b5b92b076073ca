// Package sandbox is where a rollout's processes live: it starts them in a process group of their own, ends them, and
// finds those that a crashed evalrun left behind.
//
// [Run] is all that most callers need. Every process bears the id of its rollout in its environment (see [Marker]), and
// so does what it starts: by that mark [Sweep] finds the processes of a rollout whose evalrun is gone. The package knows
// nothing of agents and rollouts but that id.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Marker is the environment variable that every process of a rollout bears, with the rollout's id as its value.
// A process that clears its environment and leaves the process group escapes; a PID namespace is the remedy for that.
const Marker = "EVALRUN_ROLLOUT"

// DefaultGrace is how long a process may take to end after SIGTERM.
const DefaultGrace = 2 * time.Second

// drainTime is how long the pipes may stay open after the last process that we know of has ended.
const drainTime = 500 * time.Millisecond

// Command is a process to start.
type Command struct {
	// RolloutID is the value of the marker.
	RolloutID string
	// Path is the program, absolute or relative to Dir. Args are its arguments, Args[0] being its name.
	Path string
	Args []string
	Dir  string
	// Env is the whole environment but for the marker. Of two entries with one name the later counts.
	Env []string
	// Stdin is what the process can read. A process that does not read it is no error.
	Stdin []byte
	// Stdout and Stderr receive what it prints; nil discards. They are not called concurrently with themselves, and not
	// after Wait. An error of either ends the process and becomes Exit.Ended.
	Stdout io.Writer
	Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL; 0 means DefaultGrace.
	Grace time.Duration
	// Ended, if not nil, is called by Wait when the process has ended, before what it left behind is looked for.
	Ended func()
}

// Exit is how a process ended.
type Exit struct {
	// State is what the system reports of the process.
	State *os.ProcessState
	// Ended is why we ended the process: the cause of the context, or the error of a writer. Nil if it ended by itself.
	Ended error
}

// Process is a running process. It must be waited for.
type Process struct {
	cmd     *exec.Cmd
	grace   time.Duration
	marker  string
	ended   func()
	started time.Time

	stdin, stdout, stderr *os.File      // our ends of the pipes
	exited                chan struct{} // closed when the process has ended, and on Linux is not yet reaped
	failed                chan error    // what the writers failed with
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

// Start starts a process. The error is that of the system call, as from [os.StartProcess].
func Start(c Command) (*Process, error) {
	p := &Process{grace: c.Grace, marker: c.RolloutID, ended: c.Ended, started: time.Now(), exited: make(chan struct{}), failed: make(chan error, 2)}
	if p.grace == 0 {
		p.grace = DefaultGrace
	}
	// The marker comes first so that it is found without reading all of an environment.
	env := append([]string{Marker + "=" + c.RolloutID}, without(c.Env, Marker)...)
	p.cmd = &exec.Cmd{Path: c.Path, Args: c.Args, Dir: c.Dir, Env: env, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}

	var theirs [3]*os.File
	var err error
	// The process gets files and not readers, so that exec starts no goroutines and its Wait waits for nothing else.
	if theirs[0], p.stdin, err = os.Pipe(); err == nil {
		if p.stdout, theirs[1], err = os.Pipe(); err == nil {
			p.stderr, theirs[2], err = os.Pipe()
		}
	}
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close() // the process has its own copies; nil files answer with an error
	}
	if err != nil {
		p.closePipes()
		return nil, err
	}
	go p.watch()
	p.copying.Go(func() { p.feed(c.Stdin) })
	p.copying.Go(func() { p.copyOut(c.Stdout, p.stdout) })
	p.copying.Go(func() { p.copyOut(c.Stderr, p.stderr) })
	return p, nil
}

// PID is the id of the process, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the process has ended, and ends it when ctx is done or a writer fails. After Wait no process of its
// group and no process that bears its marker is left. The error is for what evalrun could not do.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	var exit Exit
	select {
	case <-p.exited:
	case exit.Ended = <-p.failed:
		p.end()
	case <-ctx.Done():
		exit.Ended = context.Cause(ctx)
		p.end()
	}

	// On Linux the process is still a zombie here and holds the id of its group, which cannot be another's.
	signalGroup(p.PID(), syscall.SIGKILL)
	if p.ended != nil {
		p.ended()
	}
	err := sweepAfter(p.PID(), p.started, p.marker)
	// Wait's own error repeats the process state. Another error means that there is no state.
	if werr := p.cmd.Wait(); p.cmd.ProcessState == nil {
		err = errors.Join(err, fmt.Errorf("wait for process %d: %w", p.PID(), werr))
	}
	exit.State = p.cmd.ProcessState

	// Whoever could hold the pipes open is gone, so they end now, unless somebody has escaped.
	deadline := time.Now().Add(drainTime)
	_ = p.stdout.SetReadDeadline(deadline) // pipes have deadlines on every system we build for
	_ = p.stderr.SetReadDeadline(deadline)
	_ = p.stdin.Close()
	p.copying.Wait()
	p.closePipes()
	select {
	case werr := <-p.failed: // while the last of the output was read
		exit.Ended = cmp.Or(exit.Ended, werr)
	default:
	}
	return exit, err
}

// end ends the process as DESIGN section 7 says: stdin closed, SIGTERM, the grace, SIGKILL.
func (p *Process) end() {
	_ = p.stdin.Close() // it may be closed already
	signalGroup(p.PID(), syscall.SIGTERM)
	timer := time.NewTimer(p.grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		signalGroup(p.PID(), syscall.SIGKILL)
		<-p.exited
	}
}

// watch closes exited when the process has ended.
func (p *Process) watch() {
	awaitExit(p.cmd)
	close(p.exited)
}

// feed writes stdin. A process that ends or closes its stdin before it has read all makes the write fail, as does Wait
// by closing our end; neither is an error.
func (p *Process) feed(data []byte) {
	_, _ = p.stdin.Write(data)
	_ = p.stdin.Close()
}

// buffers are what outputs are read into; most processes print less than one holds.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// copyOut copies one output of the process. After an error of the writer it goes on reading, so that a process which
// wants to print before it ends is not stuck.
func (p *Process) copyOut(w io.Writer, r *os.File) {
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := *pooled
	for {
		n, err := r.Read(buf)
		if n > 0 && w != nil {
			if _, werr := w.Write(buf[:n]); werr != nil {
				p.failed <- werr
				w = nil
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close() // nil or closed already
	}
}
