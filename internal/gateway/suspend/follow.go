package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// errLeft says that somebody else watches the work from now on.
var errLeft = errors.New("the work is left to others")

// ErrUnknown says that a call may or may not have started something before a crash, and must not be
// made twice.
var ErrUnknown = errors.New("the call was begun before and broken off, and nobody can tell whether it has started something; it was not made again")

// survivesUs reports whether work goes on without us.
func (s *policy) survivesUs(w *wait.Work) bool {
	return w.Job != nil || !s.e.Server().ChildProcess || w.MeshJob != nil && s.hasRegistry(w)
}

// hasRegistry reports whether the registry can be asked for a job of MCP Mesh.
func (s *policy) hasRegistry(w *wait.Work) bool {
	return s.hooks.Check != nil && s.hooks.Jobs.ForProcess(w.Tool).Source == wait.SourceMesh
}

// follow waits for the result of work. If the work survives us it waits for the soft wait,
// otherwise as long as it takes. It does not wait for a person. r is nil if no client can be asked.
func (s *policy) follow(ctx context.Context, l *gateway.Upstream,
	r *mcp.Request, w *wait.Work, survivesUs bool) (wait.WorkResult, error) {
	if w.Input != nil {
		return wait.WorkResult{}, errLeft
	}
	if survivesUs {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.hooks.SoftWait, errLeft)
		defer cancel()
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		defer context.AfterFunc(s.turn, func() { stop(errLeft) })()
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return wait.WorkResult{}, context.Cause(ctx)
		case <-pause.C:
		}
		outcome, after, err := s.check(ctx, l, r, w)
		var asked *mcptask.InputRequiredError
		switch {
		case ctx.Err() != nil:
			return wait.WorkResult{}, context.Cause(ctx)
		case errors.Is(err, errLeft):
			return wait.WorkResult{}, err
		case errors.As(err, &asked):
			w.Input = &asked.Input
			if err := s.hooks.Ledger.Started(ctx, w); err != nil {
				return wait.WorkResult{}, err
			}
			return wait.WorkResult{}, errLeft
		case err != nil:
			// A server that cannot be asked now may be asked later. But nobody else will know of work that
			// we hold.
			if failures++; failures >= maxFailures || errors.Is(err, mcptask.ErrTaskLost) {
				if survivesUs && !errors.Is(err, mcptask.ErrTaskLost) {
					return wait.WorkResult{}, errLeft
				}
				return wait.WorkResult{}, mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(err))
			}
		case outcome != nil:
			return *outcome, nil
		default:
			failures = 0
		}
		pause.Reset(min(max(after, minPoll), maxPoll))
	}
}

const (
	minPoll     = 50 * time.Millisecond
	maxPoll     = 5 * time.Second
	maxFailures = 3
)

// check asks once for work.
func (s *policy) check(ctx context.Context, l *gateway.Upstream, r *mcp.Request,
	w *wait.Work) (outcome *wait.WorkResult, after time.Duration, err error) {
	if w.Task != nil {
		c, release, err := s.clientOf(ctx, l, w.Task)
		if err != nil {
			return nil, 0, err
		}
		defer release()
		ask := mcptask.Asker(func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			return gateway.AskClient(ctx, l.Capabilities(), r, method, params)
		})
		if s.AsksPerson() {
			ask = nil
		}
		outcome, err = mcptask.Poll(ctx, c, w.Task, s.e.Now(), ask)
		return outcome, time.Duration(w.Task.PollMs) * time.Millisecond, err
	}
	if w.MeshJob != nil && !s.hasRegistry(w) {
		outcome, err := checkMeshJob(ctx, l, *w.MeshJob)
		var asks *MeshAsksError
		switch {
		case errors.Is(err, ErrMeshJobLost):
			outcome, err = &wait.WorkResult{Result: TextResult(err.Error(), true)}, nil
		case errors.As(err, &asks) && s.survivesUs(w):
			err = errLeft // whoever looks at what the rollout waits for learns of it
		case errors.As(err, &asks):
			err = nil
		}
		return outcome, time.Second, err
	}
	if s.hooks.Check == nil {
		return nil, 0, errLeft
	}
	progress, err := s.hooks.Check(ctx, *w)
	switch {
	case err == nil && progress.Question != nil:
		return nil, 0, errLeft // it is asked where the rollout waits
	case errors.Is(err, wait.ErrUnwatched):
		return nil, 0, errLeft
	case err != nil || !progress.Done:
		return nil, max(progress.After, time.Second/4), err
	}
	if w.MeshJob != nil {
		if progress.Fault != nil {
			return &wait.WorkResult{Result: TextResult(progress.Fault.Message, true)}, 0, nil
		}
		return &wait.WorkResult{Result: MeshResult(progress.Payload)}, 0, nil
	}
	ending := wait.EndingOf(w.Tool, *w.Job, progress.Payload)
	if !ending.Fetch {
		return &wait.WorkResult{Result: TextResult(ending.Text, true)}, 0, nil
	}
	result, err := fetch(ctx, l.Client(), l.Endpoint().Policy().Capabilities(mcp.Modern, mcp.EmptyObject), w)
	var said *mcp.Error
	switch {
	case errors.Is(err, ErrNotDone):
		return nil, time.Second, nil
	case errors.As(err, &said):
		return &wait.WorkResult{Error: said.JSON()}, 0, nil
	case err != nil:
		return nil, time.Second, err
	}
	return &wait.WorkResult{Result: result}, 0, nil
}

// clientOf returns a connection over which a task can be asked for. Tasks of 2025-11-25 belong to
// the session that has started them, which may be that of a process before us.
func (s *policy) clientOf(ctx context.Context, l *gateway.Upstream,
	t *wait.MCPTask) (c *mcp.Client, release func(), err error) {
	if c = l.Client(); t.Era == mcp.Modern || t.Session.SessionID == c.State().SessionID {
		return c, func() {}, nil
	}
	if c, err = mcp.Connect(ctx, s.e.Server().Target, mcp.ClientOptions{Session: &t.Session, NoStream: true}); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Detach() }, nil // the session belongs to somebody else
}
