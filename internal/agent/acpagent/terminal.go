package acpagent

import (
	"context"
	"errors"
	"syscall"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// terminal is a command that an agent runs through us, in the same sandbox as its own process.
type terminal struct {
	process *sandbox.Process
	ctx     context.Context
	kill    context.CancelCauseFunc
}

var errKilled = errors.New("killed by the agent")

// startTerminal starts a command for the agent. It gets neither the way to the model nor its key.
func (l *Launch) startTerminal(c acp.TerminalCommand) (acp.TerminalProcess, error) {
	env, f := l.environ(map[string]string{})
	if f != nil {
		return nil, f
	}
	for _, kv := range c.Env {
		env = append(env, kv.Name+"="+kv.Value)
	}
	own := l.Sandbox.Config
	own.Forwards, own.Exposes, own.Spawns = nil, nil, nil // they belong to the agent's process
	process, err := sandbox.Start(sandbox.Command{
		Marker: l.Marker, Path: c.Command, Args: append([]string{c.Command}, c.Args...), Dir: c.Cwd, Env: env,
		Stdout: c.Output, Stderr: c.Output,
		Grace: l.Options.Grace, Config: &own, Shared: true, Executable: l.Sandbox.Executable,
	})
	if err != nil {
		return nil, err
	}
	if err := process.Ready(context.Background()); err != nil {
		_, ended := process.Wait(context.Background())
		return nil, errors.Join(err, ended)
	}
	t := &terminal{process: process}
	t.ctx, t.kill = context.WithCancelCause(context.Background())
	return t, nil
}

// Wait implements acp.TerminalProcess.
func (t *terminal) Wait() acp.TerminalExit {
	exit, err := t.process.Wait(t.ctx)
	t.kill(nil)
	var out acp.TerminalExit
	if err != nil || exit.State == nil {
		signal := "unknown"
		return acp.TerminalExit{Signal: &signal}
	}
	if status, ok := exit.State.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		name := status.Signal().String()
		out.Signal = &name
		return out
	}
	code := exit.State.ExitCode()
	out.Code = &code
	return out
}

// Kill implements acp.TerminalProcess.
func (t *terminal) Kill() error {
	t.kill(errKilled)
	return nil
}

var _ acp.TerminalProcess = (*terminal)(nil)
