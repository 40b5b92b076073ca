package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
)

const (
	// exitPatience is how long an agent may take to end once its stdin is closed.
	exitPatience = 2 * time.Second
	// orphanTime is how long processes of an agent may take to die after it.
	orphanTime = 500 * time.Millisecond
)

// shellTools has the names under which agents offer the model a shell, and the argument that takes
// the command. Some refuse an unknown argument.
var shellTools = []struct{ name, argument string }{
	{"^([Bb]ash|shell|run_shell_command)$", "command"},
	{"^exec_command$", "cmd"}, // codex
}

// askExit asks whether the agent ends by itself when its stdin is closed, and at SIGTERM.
func askExit(ctx context.Context, r *rig, c *Check) error {
	for _, how := range []struct {
		fact     string
		patience time.Duration
		limit    time.Duration
	}{{FactEndOfInput, exitPatience, exitPatience}, {FactTerm, 0, sandbox.DefaultGrace}} {
		a, err := r.start(ctx)
		if err != nil {
			return err
		}
		t, _ := a.remote()
		s, err := r.serve(t, 0)
		if err != nil {
			return err
		}
		session, _, err := a.open(ctx, s)
		if err != nil {
			return err
		}
		// The agent has a connection to a server, which keeps some programs from ending.
		if _, err := a.prompt(ctx, session, call(s.tool, "{}")+" [[SAY a turn]]"); err != nil {
			return err
		}
		var took time.Duration
		began := time.Now()
		a.onEnd = func() { took = time.Since(began) }
		if err := a.end(how.patience); err != nil {
			return err
		}
		if took < how.limit {
			c.add(how.fact, Yes, took, "%v", a.exit.State)
		} else {
			c.add(how.fact, No, took, "it was still there after %v", how.limit)
		}
	}
	c.Verdict = c.Fact(FactEndOfInput)
	if c.Verdict == No {
		c.Detail = "it has to be ended with a signal"
	}
	return nil
}

// askOrphans asks whether a shell that the agent has started is gone when the agent is.
func askOrphans(ctx context.Context, r *rig, c *Check) error {
	c.Verdict = "none"
	for _, how := range []struct {
		fact string
		end  func(*process) error
	}{{FactAfterTerm, func(a *process) error { return a.end(0) }}, {FactAfterKill, (*process).kill}} {
		a, err := r.start(ctx)
		if err != nil {
			return err
		}
		alive, err := r.shell(ctx, a)
		if errors.Is(err, errTooSoon) {
			c.Verdict, c.Detail = NA, "the agent has no shell tool that the probe knows"
			return nil
		} else if err != nil {
			return err
		}
		var left int
		a.onEnd = func() { left, err = alive.left() }
		if err := errors.Join(how.end(a), err, alive.Close()); err != nil {
			return err
		}
		if left == 0 {
			c.add(how.fact, "none", timeless, "the shell that it had started is gone")
			continue
		}
		c.Verdict = "orphans"
		c.add(how.fact, fmt.Sprintf("%d left", left), timeless, "the shell that it had started lives on")
	}
	if r.o.Isolation == sandbox.IsolationBwrap {
		c.Detail = "bwrap ends them; what the agent itself does is seen with --isolation process"
	}
	return nil
}

// pulse is the reading end of a FIFO that a process holds open as long as it lives.
type pulse struct {
	*os.File
	a *process
}

// shell has the agent start a shell that lives on during the turn, and waits until it runs.
func (r *rig) shell(ctx context.Context, a *process) (*pulse, error) {
	session, _, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	fifo := filepath.Join(r.dir, "work", "alive")
	if err := errors.Join(os.RemoveAll(fifo), syscall.Mkfifo(fifo, 0o600)); err != nil {
		return nil, err
	}
	// With a writer of our own, reading waits for another one.
	ours, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ours.Close() }() // nothing was written
	inside := r.sandbox.Config.Path("/app/alive")
	command := "(echo ready; exec sleep 60) > " + inside
	for _, tool := range shellTools {
		if err := ours.SetReadDeadline(time.Time{}); err != nil {
			return nil, err
		}
		args := fmt.Sprintf(`{%q:%q,"description":"waits"}`, tool.argument, command)
		running := a.begin(ctx, session, quote("[[CALL "+tool.name+" "+args+"]]")+"[[RUN "+command+"]]")
		err = running.until(ctx, func(ctx context.Context) error {
			stop := context.AfterFunc(ctx, func() { _ = ours.SetReadDeadline(time.Now()) })
			defer stop()
			if _, err := bufio.NewReader(ours).ReadString('\n'); ctx.Err() != nil {
				return context.Cause(ctx)
			} else if err != nil {
				return err
			}
			return nil
		})
		if !errors.Is(err, errTooSoon) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return &pulse{f, a}, err
}

// left counts the processes that are left, and ends them: 0 if the FIFO is closed by all of them.
func (p *pulse) left() (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(orphanTime)); err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, p); err == nil {
		return 0, nil
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	n, err := sandbox.Sweep(p.a.marker)
	return max(n, 1), err // on macOS nothing can be swept; it ends by itself
}
