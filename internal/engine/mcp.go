package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// mcpSource asks MCP servers for tasks, and for the results of jobs that nobody else can be asked
// for.
type mcpSource struct {
	lookup tasks.Lookup
	client *http.Client
	now    func() time.Time
}

const (
	firstPoll = time.Second
	lastPoll  = time.Minute
	// beforeExpiry is how long before a server forgets a result it is asked for the last time.
	beforeExpiry = 10 * time.Second
	// afterExpiry is how long after that a server that cannot be asked is asked again.
	afterExpiry = time.Minute
	// askTimeout is how long one look at a server may take.
	askTimeout = time.Minute
)

// StartKind implements wait.Source. What is waited for has been started by the call of a tool.
func (mcpSource) StartKind() wait.Start { return wait.AtMostOnce }

// Start implements wait.Source.
func (mcpSource) Start(context.Context, wait.Pending) (string, error) {
	return "", fault.New(fault.StartUnknown, "only the call of a tool starts it")
}

// Find implements wait.Source.
func (mcpSource) Find(context.Context, wait.Pending) (string, bool, error) { return "", false, nil }

// Check implements wait.Source.
func (m mcpSource) Check(ctx context.Context, p wait.Pending) (wait.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	watch, server, err := m.read(p)
	var missing *tasks.MissingVariableError
	switch {
	case errors.As(err, &missing):
		return wait.Status{}, err // another process may have it
	case err != nil:
		return failedJob(err), nil
	}
	outcome, after, err := m.ask(ctx, watch, server)
	var asked *mcptask.InputRequiredError
	switch {
	case errors.As(err, &asked):
		payload, err := asked.Input.Payload() // the rollout waits for a person then
		return wait.Status{Done: true, Payload: payload}, err
	case errors.Is(err, mcptask.ErrTaskLost):
		return failedJob(err), nil
	case err != nil && p.Spec.ExpiresAt != nil && m.now().Sub(*p.Spec.ExpiresAt) > afterExpiry:
		return failedJob(fmt.Errorf("its server has forgotten the result by now, and could not be asked: %w", err)), nil
	case err != nil:
		return wait.Status{}, err
	case outcome != nil:
		payload, err := outcome.Payload()
		return wait.Status{Done: true, Payload: payload}, err
	}
	after = min(max(after, firstPoll), lastPoll)
	after += time.Duration(rand.Int64N(int64(after/5) + 1))
	if p.Spec.ExpiresAt != nil {
		if left := p.Spec.ExpiresAt.Sub(m.now()) - beforeExpiry; left > 0 {
			after = min(after, left)
		}
	}
	return wait.Status{After: after}, nil
}

// failedJob is the end of what cannot be asked for any more.
func failedJob(err error) wait.Status {
	return wait.Status{Done: true, Fault: fault.New(fault.Job, err.Error())}
}

func (m mcpSource) read(p wait.Pending) (watch rollout.Watched, server gateway.Server, err error) {
	if err := json.Unmarshal(p.Spec.Watch, &watch); err != nil {
		return watch, server, fmt.Errorf("what is waited for cannot be read: %w", err)
	}
	declared, err := tasks.ExpandServer(watch.Server, m.lookup)
	if err != nil {
		return watch, server, err
	}
	if declared.URL == "" {
		return watch, server, fmt.Errorf("MCP server %q has no URL at which it could be asked while no agent runs; deliver the result, or configure a source that can tell", watch.Work.Server)
	}
	header := http.Header{}
	for _, h := range declared.Headers {
		header.Add(h.Name, h.Value)
	}
	target := mcp.Target{URL: declared.URL, SSE: declared.Transport == tasks.TransportSSE, Header: header, HTTPClient: m.client}
	return watch, gateway.Server{Name: declared.Name, Target: target}, nil
}

// ask looks once.
func (m mcpSource) ask(ctx context.Context, watch rollout.Watched, server gateway.Server) (outcome *mcptask.Outcome, after time.Duration, err error) {
	w, answer := watch.Work, mcptask.Asker(mcptask.Decline)
	if watch.Person {
		answer = nil
	}
	if w.Task == nil {
		result, err := suspend.Fetch(ctx, server, w.Tool, *w.Job)
		switch {
		case errors.Is(err, suspend.ErrNotDone):
			return nil, firstPoll, nil
		case err != nil:
			var said *mcp.Error
			if errors.As(err, &said) {
				return &mcptask.Outcome{Error: said.JSON()}, 0, nil
			}
			return nil, 0, err
		}
		return &mcptask.Outcome{Result: result}, 0, nil
	}
	c, err := mcp.Connect(ctx, server.Target, mcp.ClientOptions{Session: &w.Task.Session, NoStream: true})
	if err != nil {
		return nil, 0, err
	}
	outcome, err = mcptask.Poll(ctx, c, w.Task, answer)
	_ = c.Detach() // there may be other tasks in the session, which times out when nobody has a use for it
	return outcome, time.Duration(w.Task.PollMs) * time.Millisecond, err
}

// Cancel implements wait.Source.
func (m mcpSource) Cancel(ctx context.Context, p wait.Pending) error {
	watch, server, err := m.read(p)
	task := watch.Work.Task
	if err != nil || task == nil {
		return err // the contract for jobs knows no cancellation
	}
	c, err := mcp.Connect(ctx, server.Target, mcp.ClientOptions{Session: &task.Session, NoStream: true})
	if err != nil {
		return err
	}
	return errors.Join(mcptask.Cancel(ctx, c, task), c.Detach())
}
