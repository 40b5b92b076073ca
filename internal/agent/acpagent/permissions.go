package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// Who has decided on a request for permission.
const (
	byPolicy     = "policy"
	byPerson     = "person"
	bySuspension = "suspended" // the request is rejected until a person has answered
	byGateway    = "gateway"   // the gateway decides when it knows the arguments
)

// approval is a person's permission for one call. It is used once: see [Segment.Consume].
type approval struct {
	// Interrupt is the interrupt of the request. TriggerID is the trigger that was answered.
	Interrupt string `json:"interrupt"`
	TriggerID string `json:"triggerId"`
}

// deferral is a request for permission that the gateway decides.
type deferral struct {
	tool tool
	kind string
}

// permissions answers an agent's requests for permission.
type permissions struct {
	policy Policy
	// consume is the segment's [agent.Segment.Consume].
	consume func(ctx context.Context, triggerID string) (bool, error)
	servers *servers
	calls   *callRecorder
	pending *pendingRequests
	limits  *limits
	trail   *record.Trajectory

	mu sync.Mutex
	// approved lists what a person has allowed and the agent has not done yet. deferred lists the
	// requests that the gateway decides when it knows the arguments.
	approved []approval
	deferred []deferral
}

// decide decides a request. by says who has decided it.
func (p *permissions) decide(ctx context.Context, call acp.ToolCall,
	options []acp.PermissionOption) (outcome acp.PermissionOutcome, by string) {
	switch p.policy {
	case PolicyAllow:
		return acp.Allow(options), byPolicy
	case PolicySuspend:
	default:
		return acp.Deny(options), byPolicy
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.calls.tool(&call)
	once, hasOnce := acp.Once(options)
	if hasOnce && t.Server != "" && isEmptyInput(t.Input) && p.servers.behindGateway() &&
		(!t.byTitle || isOther(call.Kind)) {
		p.deferred = append(p.deferred, deferral{t, call.Kind})
		return once, byGateway
	}
	if t.Input == nil && !isEmptyInput(call.Content) {
		t.Input = call.Content // the agent would show this to a person instead of the arguments
	}
	r := permissionOf(t, call.Title, call.Kind)
	switch ok, f := p.use(ctx, r); {
	case f != nil:
		p.limits.reach(f)
		return acp.Deny(options), bySuspension
	case !ok:
		p.pending.add(r)
		return acp.Deny(options), bySuspension
	case hasOnce:
		return once, byPerson
	}
	return acp.Allow(options), byPerson
}

// isOther reports whether a call is not of one of the agent's own tools, which have specific kinds.
// The title of a command may have been written by the model.
func isOther(kind string) bool { return kind == "" || kind == "other" }

// decideCall decides a call that has come to the gateway, if the agent had asked for permission
// without the arguments. It returns why the call is not made.
func (p *permissions) decideCall(ctx context.Context, server, name string, arguments json.RawMessage) (refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.deferred, func(d deferral) bool { return d.tool.Server == server && d.tool.Name == name })
	if i < 0 {
		return ""
	}
	kind := p.deferred[i].kind
	p.deferred = slices.Delete(p.deferred, i, i+1)
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	r := permissionOf(tool{Server: server, Name: name, Input: arguments}, "", kind)
	ok, f := p.use(ctx, r)
	by := byPerson
	if f != nil {
		p.limits.reach(f)
	}
	if !ok {
		by = bySuspension
		if f == nil {
			p.pending.add(r)
		}
		refusal = "The call was not made: a person has to allow it first, and was asked. End your turn now. You will be told the decision in a later message."
	}
	p.trail.Add(record.EventPermission, p.calls.session(), "", map[string]any{
		"title": r.Title, "kind": kind, "server": server, "tool": name, "input": arguments, "by": by})
	return refusal
}

// permissionOf returns the request that a person is asked to allow.
func permissionOf(t tool, title, kind string) request {
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
	a := newRequest(requestPermission, title, kind, subject, t.Input)
	a.Server, a.Tool = t.Server, t.Name
	switch {
	case t.Name == "":
		a.Note = "the agent does not say which tool it wants to call"
	case t.Input == nil:
		a.Note = "the agent does not say with which arguments it wants to call the tool"
	}
	return a
}

// use consumes an approval of a request. The approval is gone for good before anybody acts on it.
// The caller holds mu.
func (p *permissions) use(ctx context.Context, a request) (ok bool, f *fault.Fault) {
	i := slices.IndexFunc(p.approved, func(b approval) bool { return b.Interrupt == a.Interrupt })
	if i < 0 {
		return false, nil
	}
	used := p.approved[i]
	p.approved = slices.Delete(p.approved, i, i+1)
	if p.consume == nil {
		return true, nil
	}
	ok, err := p.consume(ctx, cmp.Or(used.TriggerID, used.Interrupt))
	if err != nil {
		return false, fault.Newf(fault.Interrupted, "the use of a permission could not be recorded: %v", err)
	}
	return ok, nil
}

// approve keeps a person's permission until the agent uses it. A permission for a request that
// cannot be told from others is not kept.
func (p *permissions) approve(a request, triggerID string) {
	p.mu.Lock() // the agent may ask for something at any time
	defer p.mu.Unlock()
	if a.Note == "" {
		p.approved = append(p.approved, approval{a.Interrupt, triggerID})
	}
}

// unused returns the approvals that are left.
func (p *permissions) unused() []approval {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.approved)
}
