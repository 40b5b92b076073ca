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
	"github.com/evalrun/evalrun/internal/mcp"
)

// resumption makes the prompt that a session is resumed with. It fetches the results of the work that was
// waited for, and tells the agent what people have decided.
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

// prompt tells the agent what has arrived for what it waited for. What has not is waited for again; it is empty if that is all.
func (r *resumption) prompt(ctx context.Context) (string, error) {
	waited := r.conversation.record.Pending
	r.conversation.record.Pending = nil
	var parts []string
	for _, a := range waited {
		d, ok := r.deliveries[a.Interrupt]
		switch {
		case !ok:
			r.conversation.record.Pending = append(r.conversation.record.Pending, a)
		case a.Work == nil:
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
			if err := r.gateway.Ledger.Ended(ctx, a.Work.CallID); err != nil {
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

// recordResult records the result of work as that of the call that has started it, and tells it.
func (r *resumption) recordResult(a request, result json.RawMessage) string {
	told, text, failed := tellResult(a.Work, result)
	call := agent.Call{
		ID: cmp.Or(a.ToolCallID, a.Interrupt), Name: a.Work.Tool, Server: a.Work.Server, Status: "completed", Input: a.Work.Arguments, StartedAt: r.now().UTC(),
	}
	if failed {
		call.Status = "failed"
	}
	call.Content, _ = json.Marshal([]any{map[string]any{"type": "content", "content": map[string]string{"type": "text", "text": text}}}) // strings always marshal
	r.conversation.trail.Call(r.conversation.record.SessionID, call)
	r.calls.resultArrived(a, call)
	return told
}

// result is what came of work that was waited for: a result of its tool. again says that it is not there yet: a is what is to be waited for then.
func (r *resumption) result(ctx context.Context, a *request, d agent.Delivery) (result json.RawMessage, again bool, f *fault.Fault) {
	w := a.Work
	if w.Input != nil {
		return r.answer(ctx, a, d)
	}
	if d.Error != nil {
		return suspend.TextResult(d.Error.Message, true), false, nil
	}
	switch outcome := mcptask.ReadOutcome(d.Payload); {
	case outcome != nil && outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	case outcome != nil:
		return outcome.Result, false, nil
	case w.Task != nil && mcptask.ReadInput(d.Payload) != nil:
		work, f := r.workOf(ctx, w)
		if f == nil {
			work.Input = mcptask.ReadInput(d.Payload)
			r.waitAgain(a, work)
		}
		return nil, true, f
	case w.Task != nil:
		return suspend.TextResult(string(d.Payload), false), false, nil // of somebody who has delivered by hand
	}
	ending := suspend.EndingOf(w.Tool, *w.Job, d.Payload)
	if !ending.Fetch {
		return suspend.TextResult(ending.Text, true), false, nil
	}
	endpoint := r.servers.endpoint(w.Server)
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP, "the result of %s cannot be fetched: MCP server %q is not behind the gateway any more", w.Tool, w.Server)
	}
	fetching, cancel := context.WithTimeout(ctx, r.fetchTimeout)
	defer cancel()
	result, err := suspend.FetchAt(fetching, endpoint, w.Tool, *w.Job)
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrNotDone) && r.gateway.Refetch != nil && r.gateway.Refetch(*w):
		return nil, true, nil
	case errors.Is(err, suspend.ErrNotDone):
		return suspend.TextResult(fmt.Sprintf("The job is said to be done, but there is no result: %v.", err), true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	}
	return result, false, nil
}

// answer gives a server what a person has answered, and is what came of it.
func (r *resumption) answer(ctx context.Context, a *request, d agent.Delivery) (result json.RawMessage, again bool, f *fault.Fault) {
	endpoint := r.servers.endpoint(a.Work.Server)
	if endpoint == nil {
		return nil, false, fault.Newf(fault.MCP, "%s cannot be answered: MCP server %q is not behind the gateway any more", a.Work.Tool, a.Work.Server)
	}
	work, f := r.workOf(ctx, a.Work)
	if f != nil {
		return nil, false, f
	}
	outcome, err := suspend.Answer(ctx, endpoint, work, *a.Work.Input, elicited(d, *a.Work.Input))
	var said *mcp.Error
	switch {
	case errors.Is(err, suspend.ErrUnknown):
		return nil, false, fault.Newf(fault.StartUnknown, "%s of MCP server %q: %v", a.Work.Tool, a.Work.Server, err)
	case errors.Is(err, mcptask.ErrTaskLost):
		return suspend.TextResult("The answer came too late: "+err.Error(), true), false, nil
	case errors.As(err, &said):
		return suspend.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	case outcome == nil:
		r.waitAgain(a, work)
		return nil, true, nil
	case outcome.Error != nil:
		return suspend.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	}
	return outcome.Result, false, nil
}

// workOf is work as the ledger has it.
func (r *resumption) workOf(ctx context.Context, recorded *suspend.Work) (*suspend.Work, *fault.Fault) {
	work := &suspend.Work{}
	raw, err := r.gateway.Ledger.Work(ctx, recorded.CallID)
	if err == nil {
		err = json.Unmarshal(raw, work)
	}
	if err != nil {
		return nil, fault.Newf(fault.MCP, "what %s of MCP server %q waits for cannot be read: %v", recorded.Tool, recorded.Server, err)
	}
	return work, nil
}

// waitAgain notes that a is still waited for, as work is now.
func (r *resumption) waitAgain(a *request, work *suspend.Work) {
	a.whole, a.Work = work, r.conversation.recorded(request{Work: work}).Work
}
