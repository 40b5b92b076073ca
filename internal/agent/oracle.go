package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// oracle runs a task's own solution in the place of an agent. A task that its oracle does not solve is broken.
type oracle struct{ opts Options }

// newOracle makes the agent of an entry of type oracle.
func newOracle(opts Options) Agent { return &oracle{opts} }

// Run implements Agent.
func (o *oracle) Run(ctx context.Context, seg Segment) (Outcome, error) {
	switch {
	case seg.Place == nil || seg.Solution == nil:
		return Outcome{Fault: fault.New(fault.NotRunnable, "the oracle runs a task's solution/solve.sh, and there is none")}, nil
	case ctx.Err() != nil:
		return Outcome{Fault: causeFault(ctx)}, nil
	}
	if seg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, seg.Timeout, fault.Newf(fault.Timeout, "the solution took longer than %v and was ended", seg.Timeout))
		defer cancel()
	}
	place := seg.Place
	stdout := openLog(filepath.Join(seg.Dir, FileStdout), o.opts.Redact)
	stderr := openLog(filepath.Join(seg.Dir, FileStderr), o.opts.Redact)
	marker := seg.Marker
	if marker == "" {
		marker = seg.RolloutID
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "HOME=" + place.Home, "TMPDIR=/tmp"}, place.Env...)
	command := sandbox.Command{
		RolloutID: marker, Path: "/bin/bash", Args: []string{"bash", seg.Solution.Path}, Dir: place.Cwd, Env: append(append(env, seg.Env...), seg.Solution.Env...),
		Stdout: stdout, Stderr: stderr, Grace: o.opts.Grace, Space: &place.Space, Setup: place.Setup, Executable: place.Executable, Ended: seg.Ended,
	}
	exit, err := sandbox.Run(ctx, command)
	closed := errors.Join(stdout.Close(), stderr.Close())
	if err == nil {
		err = closed
	}
	if f := startFault(command, err); err != nil && f != nil {
		return Outcome{Fault: f}, nil
	} else if err != nil {
		return Outcome{}, fmt.Errorf("oracle: %w", err)
	}
	info := &Info{Isolation: place.Space.Isolation}
	files, err := namedFiles(seg.Dir, FileStdout, FileStderr)
	if err != nil {
		return Outcome{}, err
	}
	result := Outcome{Info: info, Files: files}
	switch {
	case ctx.Err() != nil:
		result.Fault = causeFault(ctx)
	case exit.Ended != nil:
		result.Fault = setupFault(ctx, exit.Ended)
	case !exit.State.Success():
		result.Fault = fault.New(fault.Exit, "the solution ended with "+exit.State.String()+stderr.stderrTail())
	default:
		result.Output = json.RawMessage(`{}`)
	}
	return result, nil
}

// nop does nothing, and a task that it solves is broken as well.
type nop struct{}

// Run implements Agent.
func (nop) Run(_ context.Context, seg Segment) (Outcome, error) {
	info := &Info{}
	if seg.Place != nil {
		info.Isolation = seg.Place.Space.Isolation
	}
	if seg.Ended != nil {
		seg.Ended()
	}
	return Outcome{Output: json.RawMessage(`{}`), Info: info}, nil
}
