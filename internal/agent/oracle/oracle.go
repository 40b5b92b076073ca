// Package oracle has the two agents that check a task: the oracle runs the task's own solution, and
// nop does nothing. A task that the oracle does not solve, or that nop solves, is broken.
package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// The names of the two types, and of their entries in the registry.
const (
	Name    = "oracle"
	NopName = "nop"
)

// Type is the type of the oracle. Nop is the type of the agent that does nothing.
var (
	Type = agent.Type{
		Name: Name, Needs: agent.Needs{Sandbox: true, Task: true, Solution: true}, Named: named(Name),
		New: func(_ agent.Entry, o agent.Options) agent.Agent { return &oracle{o} },
	}
	Nop = agent.Type{
		Name: NopName, Needs: agent.Needs{Sandbox: true, Task: true}, Named: named(NopName),
		New: func(agent.Entry, agent.Options) agent.Agent { return nop{} },
	}
)

// named returns the entries of a type whose entries have nothing but a name.
func named(name string) map[string]func() agent.Entry {
	return map[string]func() agent.Entry{name: func() agent.Entry { return agent.Entry{} }}
}

// oracle runs a task's own solution in the place of an agent. A task that its oracle does not solve
// is broken.
type oracle struct{ opts agent.Options }

// Run implements Agent.
func (o *oracle) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	switch {
	case seg.Sandbox == nil || seg.Solution == nil:
		return agent.Outcome{Fault: fault.New(fault.NotRunnable,
			"the oracle runs a task's solution/solve.sh, and there is none")}, nil
	case ctx.Err() != nil:
		return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
	}
	if seg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, seg.Timeout, seg.TimeoutFault())
		defer cancel()
	}
	box := seg.Sandbox
	stdout := program.OpenLog(filepath.Join(seg.Dir, record.FileStdout), o.opts.Redact)
	stderr := program.OpenLog(filepath.Join(seg.Dir, record.FileStderr), o.opts.Redact)
	env := slices.Clone(box.Env)
	if box.Home != "" {
		env = append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "HOME=" + box.Home, "TMPDIR=/tmp"},
			env...)
	}
	command := sandbox.Command{
		Marker: seg.Marker, Path: "/bin/bash", Args: []string{"bash", seg.Solution.Path}, Dir: box.Cwd,
		Env:    append(append(env, seg.Env...), seg.Solution.Env...),
		Stdout: stdout, Stderr: stderr, Grace: o.opts.Grace, Config: &box.Config, Setup: box.Setup,
		Executable: box.Executable, Ended: seg.Ended,
	}
	exit, err := sandbox.Run(ctx, command)
	closed := errors.Join(stdout.Close(), stderr.Close())
	if err == nil {
		err = closed
	}
	if f := program.StartFault(command, err); err != nil && f != nil {
		return agent.Outcome{Fault: f}, nil
	} else if err != nil {
		return agent.Outcome{}, fmt.Errorf("oracle: %w", err)
	}
	info := &record.Info{Isolation: box.Config.Isolation}
	files, err := record.FilesIn(seg.Dir, record.FileStdout, record.FileStderr)
	if err != nil {
		return agent.Outcome{}, err
	}
	result := agent.Outcome{Info: info, Files: files}
	switch {
	case ctx.Err() != nil:
		result.Fault = agent.CauseFault(ctx)
	case exit.Ended != nil:
		result.Fault = program.SetupFault(ctx, exit.Ended)
	case !exit.State.Success():
		result.Fault = fault.New(fault.Exit,
			"the solution ended with "+exit.State.String()+exit.MemoryNote()+stderr.StderrTail())
	default:
		result.Output = json.RawMessage(`{}`)
	}
	return result, nil
}

// Close implements Agent. Nothing is kept.
func (o *oracle) Close() error { return nil }

// nop does nothing, and a task that it solves is broken as well.
type nop struct{}

// Run implements Agent.
func (nop) Run(_ context.Context, seg agent.Segment) (agent.Outcome, error) {
	info := &record.Info{}
	if seg.Sandbox != nil {
		info.Isolation = seg.Sandbox.Config.Isolation
	}
	if seg.Ended != nil {
		seg.Ended()
	}
	return agent.Outcome{Output: json.RawMessage(`{}`), Info: info}, nil
}

// Close implements Agent.
func (nop) Close() error { return nil }
