// Package source is the source of jobs that asks MCP servers for the work that calls of their tools
// have started: for MCP tasks, and for the results of jobs that nobody else can be asked for.
//
// It knows how to reach a server while no agent runs. It reads what a call has started from the
// record of the call. It keeps only since when results are missing, and knows nothing of stores and
// rollouts.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// Options are what a source needs.
type Options struct {
	// Work reads the record of the work that a call of a rollout has started; nil if there is none.
	Work func(ctx context.Context, rolloutID, callID string) (*wait.Work, error)
	// Lookup gives the values of the variables in the declaration of a server.
	Lookup tasks.Lookup
	Client *http.Client
	Now    func() time.Time
}

// watch is the data of a trigger for this source. Triggers of earlier versions hold more of the
// work, but it is read from the record of the call all the same.
type watch struct {
	Work struct {
		CallID string `json:"callId"`
	} `json:"work"`
	// Server is the declaration of the server, with its ${VAR}s.
	Server tasks.MCPServer `json:"server"`
	// Person says that a person answers the questions of a task.
	Person bool `json:"person,omitempty"`
}

// Watch makes the [wait.Spec].Watch for the work that a call has started.
func Watch(callID string, server tasks.MCPServer, person bool) (json.RawMessage, error) {
	w := watch{Server: server, Person: person}
	w.Work.CallID = callID
	return json.Marshal(w)
}

// source implements wait.Source.
type source struct {
	o Options
	// ended has the [wait.MCPTask].EndedAt of tasks whose result is not there yet, by their triggers.
	ended *sync.Map
}

// New returns the source.
func New(o Options) wait.Source { return source{o, &sync.Map{}} }

const (
	firstPoll = time.Second
	lastPoll  = time.Minute
	// beforeExpiry is how long before a server forgets a result it is asked for it the last time.
	beforeExpiry = 10 * time.Second
	// AfterExpiry is how long after that a server that could not be asked is asked again.
	AfterExpiry = time.Minute
	// askTimeout is how long one check may take.
	askTimeout = time.Minute
)

// StartKind implements wait.Source. The work was started by the call of a tool.
func (source) StartKind() wait.Start { return wait.AtMostOnce }

// Start implements wait.Source.
func (source) Start(context.Context, wait.Job) (string, error) {
	return "", fault.New(fault.StartUnknown, "only the call of a tool starts it")
}

// Find implements wait.Source.
func (source) Find(context.Context, wait.Job) (string, bool, error) { return "", false, nil }

// Check implements wait.Source.
func (s source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a, err := s.read(ctx, j)
	var bad *unreadableError
	switch {
	case errors.As(err, &bad):
		return failed(err), nil
	case err != nil:
		return wait.Status{}, err
	}
	outcome, after, err := s.ask(ctx, j, a)
	var asked *mcptask.InputRequiredError
	switch {
	case errors.As(err, &asked):
		payload, err := asked.Input.Payload() // the rollout waits for a person then
		return wait.Status{Done: true, Payload: payload}, err
	case errors.Is(err, mcptask.ErrTaskLost):
		return failed(err), nil
	case errors.Is(err, suspend.ErrMeshJobLost):
		return wait.Status{Done: true, Fault: fault.New(fault.JobLost, "the job is lost: "+err.Error())}, nil
	case err != nil && j.Spec.ExpiresAt != nil && s.o.Now().Sub(*j.Spec.ExpiresAt) > AfterExpiry:
		return failed(fmt.Errorf("its server has forgotten the result by now, and could not be asked: %w", err)), nil
	case err != nil:
		return wait.Status{}, err
	case outcome != nil:
		payload, err := outcome.Payload()
		return wait.Status{Done: true, Payload: payload}, err
	}
	after = min(max(after, firstPoll), lastPoll)
	after += time.Duration(rand.Int64N(int64(after/5) + 1))
	if j.Spec.ExpiresAt != nil {
		if left := j.Spec.ExpiresAt.Sub(s.o.Now()) - beforeExpiry; left > 0 {
			after = min(after, left)
		}
	}
	return wait.Status{After: after}, nil
}

// ask asks once, and remembers since when the result of a task is missing.
func (s source) ask(ctx context.Context, j wait.Job,
	a asking) (outcome *wait.WorkResult, after time.Duration, err error) {
	task := a.work.Task
	if task == nil {
		return a.ask(ctx, s.o.Now())
	}
	if since, ok := s.ended.Load(j.TriggerID); ok {
		task.EndedAt = since.(time.Time)
	}
	outcome, after, err = a.ask(ctx, s.o.Now())
	switch {
	case outcome != nil:
		s.ended.Delete(j.TriggerID)
	case !task.EndedAt.IsZero():
		s.ended.Store(j.TriggerID, task.EndedAt)
	}
	return outcome, after, err
}

// failed is the status of work that cannot be asked for any more.
func failed(err error) wait.Status {
	return wait.Status{Done: true, Fault: fault.New(fault.Job, err.Error())}
}

// asking is everything that is needed to ask a server once.
type asking struct {
	work   *wait.Work
	server gateway.Server
	person bool
}

// unreadableError says that the work will never be readable.
type unreadableError struct{ error }

// read combines a trigger, the record of its call and the configuration. An error that is not an
// unreadableError may be gone the next time, or in another process: a variable without a value
// here, or a store that is busy.
func (s source) read(ctx context.Context, j wait.Job) (a asking, err error) {
	var w watch
	if err := json.Unmarshal(j.Spec.Watch, &w); err != nil {
		return a, &unreadableError{fmt.Errorf("what is waited for cannot be read: %w", err)}
	}
	declared, err := tasks.ExpandServer(w.Server, s.o.Lookup)
	var missing *tasks.MissingVariableError
	switch {
	case errors.As(err, &missing):
		return a, err
	case err != nil:
		return a, &unreadableError{err}
	case declared.URL == "":
		return a, &unreadableError{fmt.Errorf("MCP server %q has no URL at which it could be asked while no agent runs; deliver the result, or configure a source that can tell",
			w.Server.Name)}
	}
	if a.work, err = s.o.Work(ctx, j.RolloutID, w.Work.CallID); err != nil {
		return a, err
	}
	if a.work == nil || a.work.Task == nil && a.work.Job == nil && a.work.MeshJob == nil {
		return a, &unreadableError{fmt.Errorf("what the call %s has started is not recorded", w.Work.CallID)}
	}
	header := http.Header{}
	for _, h := range declared.Headers {
		header.Add(h.Name, h.Value)
	}
	target := mcp.Target{
		URL: declared.URL, SSE: declared.Transport == tasks.TransportSSE, Header: header, HTTPClient: s.o.Client,
	}
	a.server, a.person = gateway.Server{Name: declared.Name, Target: target}, w.Person
	return a, nil
}

// ask asks once. The outcome is nil if the work goes on; after is when its server wants to be asked
// again.
func (a asking) ask(ctx context.Context, now time.Time) (outcome *wait.WorkResult, after time.Duration, err error) {
	switch {
	case a.work.MeshJob != nil:
		outcome, err = suspend.CheckMeshJob(ctx, a.server, *a.work.MeshJob)
		return outcome, firstPoll, err
	case a.work.Task == nil:
		return a.fetch(ctx)
	}
	answer := mcptask.Asker(mcptask.Decline)
	if a.person {
		answer = nil
	}
	task := a.work.Task
	c, err := mcp.Connect(ctx, a.server.Target, mcp.ClientOptions{Session: &task.Session, NoStream: true})
	if err != nil {
		return nil, 0, err
	}
	outcome, err = mcptask.Poll(ctx, c, task, now, answer)
	_ = c.Detach() // the session may have other tasks, and it times out when nobody uses it
	return outcome, time.Duration(task.PollMs) * time.Millisecond, err
}

// fetch asks for the result of a job.
func (a asking) fetch(ctx context.Context) (*wait.WorkResult, time.Duration, error) {
	result, err := suspend.Fetch(ctx, a.server, a.work)
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrNotDone):
		return nil, firstPoll, nil
	case errors.As(err, &said):
		return &wait.WorkResult{Error: said.JSON()}, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return &wait.WorkResult{Result: result}, 0, nil
}

// Cancel implements wait.Source. The contract uipath.com/job knows no cancellation.
func (s source) Cancel(ctx context.Context, j wait.Job) error {
	a, err := s.read(ctx, j)
	if err == nil && a.work.MeshJob != nil {
		return suspend.CancelMeshJob(ctx, a.server, *a.work.MeshJob)
	}
	if err != nil || a.work.Task == nil {
		return err
	}
	c, err := mcp.Connect(ctx, a.server.Target, mcp.ClientOptions{Session: &a.work.Task.Session, NoStream: true})
	if err != nil {
		return err
	}
	return errors.Join(mcptask.Cancel(ctx, c, a.work.Task), c.Detach())
}
