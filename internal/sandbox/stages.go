package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// outputTime is how long the output of a command that has ended may take to end, because a process
// that it started can go on writing.
const outputTime = 100 * time.Millisecond

// The defaults of a healthcheck, which are those of published tasks.
const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = 30 * time.Second
	defaultRetries  = 3
)

// setUp goes through the stages of the setup. A service that fails ends ctx, with its failure as
// the cause.
func (in *initProcess) setUp(ctx context.Context, cancel context.CancelCauseFunc) *SetupError {
	for _, c := range in.Setup.Services {
		if err := in.serve(c, cancel); err != nil {
			return &SetupError{Stage: StageService, Command: c.String(), Err: err}
		}
	}
	for _, c := range in.Setup.Commands {
		if output, err := in.runCommand(ctx, c, false); err != nil {
			return &SetupError{StageCommand, c.String(), output, err}
		}
	}
	if failed := in.waitFor(ctx); failed != nil {
		return failed
	}
	if h := in.Setup.Healthcheck; h != nil {
		if output, err := in.awaitHealth(ctx, *h); err != nil {
			return &SetupError{StageHealthcheck, h.String(), output, err}
		}
	}
	return nil
}

// serve starts a service. It is no error if the service ends well, because it may have gone into
// the background.
func (in *initProcess) serve(c SetupCommand, cancel context.CancelCauseFunc) error {
	started, out, err := in.startCommand(c, false)
	if err != nil {
		return err
	}
	in.services = append(in.services, service{started, out})
	go func() {
		<-started.ended
		if err := ended(started.status); err != nil && !c.MayFail {
			out.settle()
			cancel(&SetupError{StageService, c.String(), out.String(), err})
		}
	}()
	return nil
}

// runCommand runs a command to its end and returns the end of its output.
func (in *initProcess) runCommand(ctx context.Context, c SetupCommand, leader bool) (output string, err error) {
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("it was still running after %v", c.Timeout))
		defer stop()
	}
	command, out, err := in.startCommand(c, leader)
	if err != nil {
		return "", err
	}
	select {
	case <-command.ended:
		err = ended(command.status)
	case <-ctx.Done():
		err = context.Cause(ctx)
		_ = syscall.Kill(command.pid, syscall.SIGKILL) // it may have ended meanwhile
		<-command.ended
	}
	if leader {
		signalGroup(command.pid, syscall.SIGKILL)
	}
	out.settle()
	return out.String(), err
}

// command makes the command, in the group of the init or as the leader of a group of its own.
func (in *initProcess) command(c SetupCommand, leader bool) (*exec.Cmd, error) {
	args := c.Args
	if len(args) == 0 {
		args = []string{"/bin/sh", "-c", c.Command}
	}
	dir := cmp.Or(c.Dir, string(in.Dir))
	env := append(in.env(), without(c.Env, MarkerVar)...)
	if in.Remote != nil {
		scope := ""
		if leader { // it can be ended by itself
			scope = newScope()
		}
		return in.remoteCommand(args, env, dir, c.User, leader, scope)
	}
	if _, err := os.Stat(dir); err != nil && dir != "" { // otherwise the program would seem to be missing
		return nil, fmt.Errorf("its folder: %w", err)
	}
	path, err := lookPath(args[0], env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: args, Dir: dir, Env: env, SysProcAttr: &syscall.SysProcAttr{Setpgid: leader}}
	return cmd, in.become(cmd, c.User)
}

// startCommand starts a command of the setup.
func (in *initProcess) startCommand(c SetupCommand, leader bool) (*child, *captured, error) {
	cmd, err := in.command(c, leader)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	started, err := in.start(cmd)
	_ = w.Close() // the command has its own copy
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	out := &captured{tail: tail{w: in.log}, complete: make(chan struct{})}
	go func() {
		defer close(out.complete)
		defer func() { _ = r.Close() }()
		_, _ = io.Copy(out, r) // the log fails when evalrun is gone, and then everything ends
	}()
	return started, out, nil
}

// captured is the output of a command, passed on to the log and kept in part.
type captured struct {
	tail
	complete chan struct{}
}

// settle waits for the rest of the output of a command that has ended.
func (c *captured) settle() {
	timer := time.NewTimer(outputTime)
	defer timer.Stop()
	select {
	case <-c.complete:
	case <-timer.C:
	}
}

// String is the command as a person would write it.
func (c SetupCommand) String() string {
	if len(c.Args) > 0 {
		return strings.Join(c.Args, " ")
	}
	return c.Command
}

// ended describes an exit status as an error; nil for 0.
func ended(status syscall.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("it was ended by a signal (%v)", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}

// waitFor waits until every address has accepted a connection.
func (in *initProcess) waitFor(ctx context.Context) *SetupError {
	timeout := cmp.Or(in.Setup.WaitTimeout, DefaultWaitTimeout)
	ctx, stop := context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("nothing accepted a connection there within %v", timeout))
	defer stop()
	for _, address := range in.Setup.WaitFor {
		if in.Remote != nil {
			output, err := in.runCommand(ctx, SetupCommand{Args: append(slices.Clone(in.Remote.Await), address)}, true)
			if err != nil {
				return &SetupError{StageWait, "wait for " + address, output, err}
			}
			continue
		}
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				_ = c.Close()
				break
			}
			if err := rest(ctx, pause); err != nil { // nothing tells when somebody begins to listen
				return &SetupError{Stage: StageWait, Command: "wait for " + address, Err: err}
			}
		}
	}
	return nil
}

// awaitHealth repeats the healthcheck until it succeeds or has failed too often.
func (in *initProcess) awaitHealth(ctx context.Context, h Healthcheck) (output string, err error) {
	h.Interval, h.StartInterval = cmp.Or(h.Interval, defaultInterval), cmp.Or(h.StartInterval, defaultInterval)
	h.Timeout, h.Retries = cmp.Or(h.Timeout, defaultTimeout), cmp.Or(h.Retries, defaultRetries)
	began := time.Now()
	pause := min(h.StartInterval, h.StartPeriod)
	for attempt, counted := 1, 0; ; attempt++ {
		if err := rest(ctx, pause); err != nil {
			return output, err
		}
		if output, err = in.runCommand(ctx, h.SetupCommand, true); err == nil || ctx.Err() != nil {
			return output, err
		}
		pause = h.StartInterval
		if time.Since(began) >= h.StartPeriod {
			pause = h.Interval
			if counted++; counted >= h.Retries {
				return output, fmt.Errorf("failed after %d attempts, the last time: %w", attempt, err)
			}
		}
	}
}

// rest waits, unless ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
