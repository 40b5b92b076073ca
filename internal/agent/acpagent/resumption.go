package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// resumption makes the prompt with which a session is resumed. It fetches the results of pending
// work, and tells the agent what people have decided.
type resumption struct {
	deliveries   map[string]agent.Delivery
	gateway      *agent.Gateway
	fetchTimeout time.Duration
	now          func() time.Time

	conversation *conversation
	servers      *servers
	calls        *callRecorder
	permissions  *permissions
}

// prompt returns the text that tells the agent what has arrived. Requests without an arrival are
// pending again; the text is empty if nothing has arrived and some are pending.
func (r *resumption) prompt(ctx context.Context) (string, error) {
	waited := r.conversation.record.Pending
	r.conversation.record.Pending = nil
	var parts []string
	for _, a := range waited {
		if a.Call != nil {
			if err := r.loadWork(ctx, &a); err != nil {
				return "", err
			}
		}
		d, ok := r.deliveries[a.Interrupt]
		switch {
		case !ok:
			r.conversation.record.Pending = append(r.conversation.record.Pending, a)
		case a.Call == nil:
			parts = append(parts, r.tellDecision(a, d))
		default:
			result, again, f := r.result(ctx, &a, d)
			switch {
			case f != nil:
				return "", f
			case again:
				r.conversation.record.Pending = append(r.conversation.record.Pending, a)
				continue
			}
			if err := r.gateway.Ledger.Ended(ctx, a.Call.CallID); err != nil {
				return "", err
			}
			parts = append(parts, r.recordResult(a, result))
		}
	}
	if parts == nil && len(r.conversation.record.Pending) > 0 {
		return "", nil
	}
	if n := len(r.conversation.record.Pending); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more that you wait for will come in a later message.", n))
	}
	return strings.Join(append(parts, "Go on with your work."), "\n\n"), nil
}

// tellDecision notes what a person has allowed, and tells it.
func (r *resumption) tellDecision(a request, d agent.Delivery) string {
	decided := decide(d)
	if decided.allowed && a.What == requestPermission {
		r.permissions.approve(a, d.TriggerID)
	}
	return a.tell(decided)
}

// recordResult records the result of work as the result of the call that has started it, and tells
// it.
func (r *resumption) recordResult(a request, result json.RawMessage) string {
	w := *a.work
	w.Arguments = r.conversation.withoutSecrets(w.Arguments)
	told, text, failed := tellResult(&w, result)
	call := record.Call{
		ID: cmp.Or(a.ToolCallID, a.Interrupt), Name: w.Tool, Server: w.Server, Status: "completed", Input: w.Arguments,
		StartedAt: r.now().UTC(),
	}
	if failed {
		call.Status = "failed"
	}
	// Strings always marshal.
	call.Content, _ = json.Marshal([]any{map[string]any{"type": "content",
		"content": map[string]string{"type": "text", "text": text}}})
	r.conversation.trail.Call(r.conversation.record.SessionID, call)
	r.calls.resultArrived(a, call)
	return told
}

// result returns the result of pending work, as a result of its tool. again says that there is no
// result yet; the rollout then waits for a again.
func (r *resumption) result(ctx context.Context, a *request, d agent.Delivery) (
	result json.RawMessage, again bool, f *fault.Fault) {
	w := a.work
	if a.Call.Input != nil {
		return r.answer(ctx, a, d)
	}
	if d.Error != nil {
		return suspend.TextResult(d.Error.Message, true), false, nil
	}
	switch outcome := wait.ReadWorkResult(d.Payload); {
	case outcome != nil && outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	case outcome != nil:
		return outcome.Result, false, nil
	case w.Task != nil && wait.ReadInput(d.Payload) != nil:
		w.Input = wait.ReadInput(d.Payload)
		r.waitAgain(a)
		return nil, true, nil
	case w.MeshJob != nil:
		return suspend.MeshResult(d.Payload), false, nil
	case w.Task != nil:
		return suspend.TextResult(string(d.Payload), false), false, nil // somebody has delivered the payload by hand
	}
	ending := wait.EndingOf(w.Tool, *w.Job, d.Payload)
	if !ending.Fetch {
		return suspend.TextResult(ending.Text, true), false, nil
	}
	endpoint := r.servers.endpoint(w.Server)
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP,
			"the result of %s cannot be fetched: MCP server %q is not behind the gateway any more", w.Tool, w.Server)
	}
	fetching, cancel := context.WithTimeout(ctx, r.fetchTimeout)
	defer cancel()
	result, err := suspend.FetchAt(fetching, endpoint, w)
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrNotDone) && r.gateway.Jobs.ForProcess(w.Tool).Source == wait.SourceMCP:
		return nil, true, nil
	case errors.Is(err, suspend.ErrNotDone):
		return suspend.TextResult(fmt.Sprintf("The job is said to be done, but there is no result: %v.", err),
			true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	}
	return result, false, nil
}

// answer gives a person's answer to a server, and returns the result of that.
func (r *resumption) answer(ctx context.Context, a *request, d agent.Delivery) (
	result json.RawMessage, again bool, f *fault.Fault) {
	endpoint := r.servers.endpoint(a.work.Server)
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP, "%s cannot be answered: MCP server %q is not behind the gateway any more",
			a.work.Tool, a.work.Server)
	}
	if ctx.Err() != nil {
		return nil, false, agent.CauseFault(ctx)
	}
	answering, end := grace.Outlast(ctx, grace.Stop)
	defer end()
	outcome, err := suspend.Answer(answering, endpoint, a.work, *a.Call.Input, elicited(d, *a.Call.Input))
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrUnknown):
		return nil, false, fault.Newf(fault.StartUnknown, "%s of MCP server %q: %v", a.work.Tool, a.work.Server, err)
	case errors.Is(err, mcptask.ErrTaskLost):
		return suspend.TextResult("The answer came too late: "+err.Error(), true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	case outcome == nil:
		r.waitAgain(a)
		return nil, true, nil
	case outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	}
	return outcome.Result, false, nil
}

// loadWork reads the work that the call of a has started.
func (r *resumption) loadWork(ctx context.Context, a *request) (err error) {
	if a.work, err = r.gateway.Ledger.Work(ctx, a.Call.CallID); err == nil && a.work == nil {
		err = errors.New("nothing is recorded")
	}
	if err != nil {
		return fault.Newf(fault.MCP, "what the call %s has started cannot be read: %v", a.Call.CallID, err)
	}
	return nil
}

// waitAgain notes that a is still pending, with its work as it is now.
func (r *resumption) waitAgain(a *request) {
	a.Call = r.conversation.recorded(request{work: a.work}).Call
}
