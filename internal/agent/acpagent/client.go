package acpagent

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// client is our side of the conversation: it records the agent's updates and answers its requests.
type client struct {
	elicitation Policy
	// outputBytes is how many bytes the agent may say.
	outputBytes int64
	trail       *record.Trajectory
	calls       *callRecorder
	permissions *permissions
	pending     *pendingRequests
	idle        *idleTimer
	limits      *limits

	mu sync.Mutex
	// replaying says that the incoming updates were recorded before.
	replaying bool
	// usage is the usage that the agent reported last. cost is the cost of the session in US
	// dollars that it reported last; nil if it reported none. said is how many bytes it has said.
	usage json.RawMessage
	cost  *float64
	said  int64
	// denied says that the agent was denied something in this segment. Some agents then end their
	// turn as cancelled.
	denied bool
}

// replay says whether the updates that come now are only repeated.
func (c *client) replay(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaying = on
}

// wasDenied reports whether the agent was denied something.
func (c *client) wasDenied() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.denied
}

// lastUsage returns the usage of the model that the agent reported last.
func (c *client) lastUsage() json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}

// lastCost returns what the session has cost so far in US dollars; nil if the agent has not
// reported it.
func (c *client) lastCost() *float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cost
}

// Update implements acp.Handler.
func (c *client) Update(u acp.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaying {
		return
	}
	c.idle.reset()
	if u.SessionID != "" && !c.calls.isOf(u.SessionID) { // nobody has opened that session
		c.trail.Add(record.EventUpdate, u.SessionID, "", u.Raw)
		return
	}
	switch u.Kind {
	case acp.UpdateUserMessage: // the prompt is recorded already
	case acp.UpdateAgentMessage:
		c.say(record.EventMessage, u)
	case acp.UpdateAgentThought:
		c.say(record.EventThought, u)
	case acp.UpdateToolCall, acp.UpdateToolCallUpdate:
		c.calls.update(u)
	case acp.UpdatePlan:
		c.trail.Add(record.EventPlan, u.SessionID, "", u.Raw)
	case acp.UpdateUsage:
		c.usage = u.Raw
		if usage, ok := u.Usage(); ok && usage.Cost != nil && usage.Cost.Currency == "USD" && usage.Cost.Amount >= 0 {
			c.cost = &usage.Cost.Amount
		}
		c.trail.Add(record.EventUsage, u.SessionID, "", u.Raw)
	default:
		c.trail.Add(record.EventUpdate, u.SessionID, "", u.Raw)
	}
}

// say records a piece of a message or thought. The caller holds mu.
func (c *client) say(kind string, u acp.Update) {
	text, ok := u.Text()
	if !ok {
		c.trail.Add(record.EventUpdate, u.SessionID, "", u.Raw)
		return
	}
	if c.said += int64(len(text)); c.said > c.outputBytes {
		c.limits.exceed(fault.Newf(fault.OutputLimit, "the agent said more than %d bytes (limits.outputBytes)",
			c.outputBytes))
		return
	}
	c.trail.Say(kind, u.SessionID, text)
}

// RequestPermission implements acp.Handler.
func (c *client) RequestPermission(ctx context.Context, req acp.PermissionRequest) (acp.PermissionOutcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle.reset()
	if c.replaying {
		return acp.PermissionOutcome{}, nil
	}
	call := c.calls.complete(req.ToolCall) // the call may have reported before what the request leaves out
	outcome, by := c.permissions.decide(ctx, call, req.Options)
	if outcome.OptionID == "" || by == bySuspension || by == byPolicy && c.permissions.policy != PolicyAllow {
		c.denied = true
	}
	if by == bySuspension || by == byPolicy && c.permissions.policy != PolicyAllow {
		c.calls.reject(call.ID, by)
	}
	t := c.calls.tool(&call)
	c.trail.Add(record.EventPermission, req.SessionID, "", map[string]any{
		"toolCallId": call.ID, "title": call.Title, "kind": call.Kind, "server": t.Server, "tool": t.Name, "input": t.Input,
		"optionId": outcome.OptionID, "by": by,
	})
	return outcome, nil
}

// elicit answers a question.
func (c *client) elicit(_ context.Context, req acp.ElicitationRequest) (acp.ElicitationResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle.reset()
	result := acp.ElicitationResult{Action: acp.ElicitDecline}
	if c.elicitation == PolicySuspend && !c.replaying {
		in := req.Schema
		if req.URL != "" {
			in, _ = json.Marshal(map[string]string{"url": req.URL}) // a string always marshals
		}
		c.pending.add(newRequest(requestQuestion, req.Message, req.Mode, req.Message, in))
		result.Action = acp.ElicitCancel
	}
	c.trail.Add(record.EventElicitation, req.SessionID, req.Message,
		map[string]any{"mode": req.Mode, "action": result.Action})
	return result, nil
}
