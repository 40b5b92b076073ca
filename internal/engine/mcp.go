package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// behindGateway says how the servers of a claimed rollout are put behind the gateway; nil if they are not.
func (w *worker) behindGateway(e *environment) *agent.Gateway {
	if w.plan.MCP == plans.MCPDirect || w.entry.Type != agent.TypeACP {
		return nil
	}
	g := &agent.Gateway{
		Ledger: ledger{w.o.Store, w.claim.Token}, SoftWait: w.plan.Set.Limits.SoftWait, Filters: map[string]gateway.Filter{}, Check: w.plan.checkWork,
		Refetch: func(work gateway.Work) bool { return w.plan.Jobs.SourceOf(work.Tool) == wait.SourceMCP },
	}
	for _, s := range e.servers {
		g.Filters[s.Name] = gateway.Filter{Tools: s.Tools, IncludeTags: s.IncludeTags, ExcludeTags: s.ExcludeTags}
	}
	return g
}

// ledger keeps the calls of a claimed rollout in the store.
type ledger struct {
	store store.Store
	token store.Token
}

// Begin implements gateway.Ledger.
func (l ledger) Begin(ctx context.Context, key gateway.CallKey) (gateway.Entry, error) {
	c, err := l.store.BeginCall(ctx, l.token, store.CallKey(key))
	failpoint.Hit("call.begun")
	return gateway.Entry(c), err
}

// Started implements gateway.Ledger.
func (l ledger) Started(ctx context.Context, id string, work json.RawMessage) error {
	failpoint.Hit("call.answered")
	err := l.store.CallStarted(ctx, l.token, id, work)
	failpoint.Hit("call.started")
	return err
}

// Work implements gateway.Ledger.
func (l ledger) Work(ctx context.Context, id string) (json.RawMessage, error) {
	return l.store.CallWork(ctx, l.token, id)
}

// Ended implements gateway.Ledger.
func (l ledger) Ended(ctx context.Context, id string) error {
	err := l.store.EndCall(ctx, l.token, id)
	failpoint.Hit("call.ended")
	return err
}

// permissionCall is the name under which the uses of permissions are kept among the calls, which no server's tool has.
const permissionCall = "permission"

// consume implements [agent.Segment].Consume: the use of a permission is a call that never ends, so that it cannot be begun again.
func (l ledger) consume(ctx context.Context, triggerID string) (bool, error) {
	c, err := l.store.BeginCall(ctx, l.token, store.CallKey{Tool: permissionCall, Arguments: triggerID})
	failpoint.Hit("permission.used")
	return c.New, err
}

// checkWork asks the source of a job whether it is done.
func (run *activeRun) checkWork(ctx context.Context, w gateway.Work) (gateway.Progress, error) {
	spec, err := agent.WorkSpec(w)
	if err != nil {
		return gateway.Progress{}, err
	}
	name := run.sources.Name(spec)
	if name == wait.SourceExternal || name == wait.SourceMCP {
		return gateway.Progress{}, gateway.ErrUnwatched
	}
	source, err := run.sources.For(name, spec)
	if err != nil {
		return gateway.Progress{}, err
	}
	status, err := source.Check(ctx, wait.Pending{ItemKey: spec.ItemKey, Spec: spec})
	if err == nil && status.Fault != nil {
		status.Payload, err = json.Marshal(map[string]string{"state": "Faulted", "info": status.Fault.Message})
	}
	return gateway.Progress{Done: status.Done, Payload: status.Payload, After: status.After}, err
}

// watched is what the source mcp needs to ask for work: the server as it is declared, with its ${VAR}s, and whether a person answers what a task
// wants to know.
type watched struct {
	Work   gateway.Work    `json:"work"`
	Server tasks.MCPServer `json:"server"`
	Person bool            `json:"person,omitempty"`
}

// addServer adds to what a rollout waits for the server that has to be asked for it.
func (w *worker) addServer(spec *wait.Spec) error {
	if spec.Watch == nil {
		return nil
	}
	watch := watched{Person: w.entry.Elicitation == agent.PolicySuspend}
	if err := json.Unmarshal(spec.Watch, &watch.Work); err != nil {
		return err
	}
	for _, s := range w.declared {
		if s.Name == watch.Work.Server {
			watch.Server = s
		}
	}
	var err error
	spec.Watch, err = json.Marshal(watch)
	return err
}

// mcpSource asks MCP servers for tasks, and for the results of jobs that nobody else can be asked for.
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
	var asked *gateway.InputRequiredError
	switch {
	case errors.As(err, &asked):
		payload, err := asked.Input.Payload() // the rollout waits for a person then
		return wait.Status{Done: true, Payload: payload}, err
	case errors.Is(err, gateway.ErrTaskLost):
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

func (m mcpSource) read(p wait.Pending) (watch watched, server gateway.Server, err error) {
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
func (m mcpSource) ask(ctx context.Context, watch watched, server gateway.Server) (outcome *gateway.Outcome, after time.Duration, err error) {
	w, answer := watch.Work, gateway.Asker(gateway.Decline)
	if watch.Person {
		answer = nil
	}
	if w.Task == nil {
		result, err := gateway.Fetch(ctx, server, w.Tool, *w.Job)
		switch {
		case errors.Is(err, gateway.ErrNotDone):
			return nil, firstPoll, nil
		case err != nil:
			var said *mcp.Error
			if errors.As(err, &said) {
				return &gateway.Outcome{Error: said.JSON()}, 0, nil
			}
			return nil, 0, err
		}
		return &gateway.Outcome{Result: result}, 0, nil
	}
	c, err := mcp.Connect(ctx, server.Target, mcp.ClientOptions{Session: &w.Task.Session, NoStream: true})
	if err != nil {
		return nil, 0, err
	}
	outcome, err = gateway.Poll(ctx, c, w.Task, answer)
	_ = c.Abandon() // there may be other tasks in the session, which times out when nobody has a use for it
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
	return errors.Join(gateway.CancelTask(ctx, c, task), c.Abandon())
}
