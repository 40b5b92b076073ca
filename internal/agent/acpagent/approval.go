package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// Who has decided on a request for permission.
const (
	byPolicy     = "policy"
	byPerson     = "person"
	bySuspension = "suspended" // it was rejected until a person has answered
	byGateway    = "gateway"   // it is decided when the gateway knows the arguments
)

// approval is a person's permission for one call. It is used once: see [Segment.Consume].
type approval struct {
	// Interrupt is that of the request, TriggerID the trigger that was answered.
	Interrupt string `json:"interrupt"`
	TriggerID string `json:"triggerId"`
}

// deferral is a request for permission on which the gateway decides.
type deferral struct {
	tool tool
	kind string
}

// permit decides on a request; by says who did. The caller holds mu.
func (c *client) permit(ctx context.Context, call acp.ToolCall, options []acp.PermissionOption) (outcome acp.PermissionOutcome, by string) {
	switch c.s.entry.Permissions {
	case agent.PolicyAllow:
		return acp.Allow(options), byPolicy
	case agent.PolicySuspend:
	default:
		return acp.Deny(options), byPolicy
	}
	t := c.s.toolOf(&call, c.titles[call.ID])
	once, hasOnce := acp.Once(options)
	if hasOnce && t.Server != "" && !t.byTitle && isEmptyInput(t.Input) && c.s.access != nil {
		c.deferred = append(c.deferred, deferral{t, call.Kind})
		return once, byGateway
	}
	if t.Input == nil && !isEmptyInput(call.Content) {
		t.Input = call.Content // what the agent would show a person in place of arguments
	}
	a := permissionOf(t, call.Title, call.Kind)
	switch ok, f := c.useApproval(ctx, a); {
	case f != nil:
		c.limit(f)
		return acp.Deny(options), bySuspension
	case !ok:
		c.wait(a)
		return acp.Deny(options), bySuspension
	case hasOnce:
		return once, byPerson
	}
	return acp.Allow(options), byPerson
}

// permitCall decides on a call that has come to the gateway, if the agent had asked for it without its arguments. It returns why the call is not made.
func (c *client) permitCall(ctx context.Context, server, name string, arguments json.RawMessage) (refusal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.deferred, func(d deferral) bool { return d.tool.Server == server && d.tool.Name == name })
	if i < 0 {
		return ""
	}
	kind := c.deferred[i].kind
	c.deferred = slices.Delete(c.deferred, i, i+1)
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	t := tool{Server: server, Name: name, Input: arguments}
	a := permissionOf(t, "", kind)
	ok, f := c.useApproval(ctx, a)
	by := byPerson
	if f != nil {
		c.limit(f)
	}
	if !ok {
		by = bySuspension
		if f == nil {
			c.wait(a)
		}
		refusal = "The call was not made: a person has to allow it first, and was asked. End your turn now. You will be told the decision in a later message."
	}
	c.s.trail.Add(agent.EventPermission, c.sessionID, "", map[string]any{"title": a.Title, "kind": kind, "server": server, "tool": name, "input": arguments, "by": by})
	return refusal
}

// permissionOf is what a person is asked for.
func permissionOf(t tool, title, kind string) asked {
	subject := t.Name
	if t.Server != "" {
		subject = t.Server + "." + t.Name
	}
	if isEmptyInput(t.Input) {
		subject += "\x00" + title
	}
	if t.Name != "" && !strings.Contains(title, t.Name) {
		title = strings.TrimSuffix(t.Name+": "+title, ": ")
	}
	a := newAsked(askedPermission, title, kind, subject, t.Input)
	a.Server, a.Tool = t.Server, t.Name
	switch {
	case t.Name == "":
		a.Note = "the agent does not say which tool it wants to call"
	case t.Input == nil:
		a.Note = "the agent does not say with which arguments it wants to call the tool"
	}
	return a
}

// useApproval uses an approval of a request up. The approval is gone for good before anybody acts on it. The caller holds mu.
func (c *client) useApproval(ctx context.Context, a asked) (ok bool, f *fault.Fault) {
	i := slices.IndexFunc(c.approved, func(b approval) bool { return b.Interrupt == a.Interrupt })
	if i < 0 {
		return false, nil
	}
	used := c.approved[i]
	c.approved = slices.Delete(c.approved, i, i+1)
	if c.s.seg.Consume == nil {
		return true, nil
	}
	ok, err := c.s.seg.Consume(ctx, cmp.Or(used.TriggerID, used.Interrupt))
	if err != nil {
		return false, fault.Newf(fault.Interrupted, "the use of a permission could not be recorded: %v", err)
	}
	return ok, nil
}

// approve keeps a person's permission until the agent uses it. One for a request that cannot be told from others is of no use.
func (c *client) approve(a asked, triggerID string) {
	c.mu.Lock() // the agent may ask for something at any time
	defer c.mu.Unlock()
	if a.Note == "" {
		c.approved = append(c.approved, approval{a.Interrupt, triggerID})
	}
}

// unused are the approvals that are left.
func (c *client) unused() []approval {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.approved)
}

// approvals are those that the segments before have left.
func (r *sessionRecord) approvals() []approval {
	all := slices.Clone(r.Approved)
	for _, interrupt := range r.Allowed {
		all = append(all, approval{Interrupt: interrupt})
	}
	return all
}
