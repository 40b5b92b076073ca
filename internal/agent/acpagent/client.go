package acpagent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// client is our side of the conversation: it records what the agent does and answers what it asks.
type client struct {
	s    *segment
	caps acp.Capabilities
	// limits carries the limit that ends the turn.
	limits chan *fault.Fault
	// waitedOut is closed when the turn has gone on for too long after it has asked for something that waits.
	waitedOut chan struct{}

	mu sync.Mutex
	// sessionID is that of the session once it is open.
	sessionID string
	// replaying says that what comes was recorded before.
	replaying bool
	tools     acp.ToolCalls
	calls     callLog
	// By the ids of calls: when each began, with which title and which number it has, which were told, who has rejected it, and what it has printed besides its updates.
	started  map[string]time.Time
	titles   map[string]string
	numbers  map[string]int
	told     map[string]bool
	rejected map[string]string
	printed  map[string]*strings.Builder
	// usage is what the agent reported last.
	usage json.RawMessage
	// active is when something happened last, idle looks at that; it is nil outside the turn.
	active time.Time
	idle   *time.Timer
	// said counts the bytes of what the agent said.
	said   int64
	excess *fault.Fault
	// asked is what the turn has asked a person for or has started; arrived are the calls whose work has brought its result after all.
	asked   []asked
	arrived map[string]bool
	over    *time.Timer
	// approved is what a person has allowed and the agent has not done yet, deferred what the gateway decides on when the arguments are known.
	approved []approval
	deferred []deferral
}

func newClient(s *segment) *client {
	return &client{
		s: s, limits: make(chan *fault.Fault, 1), waitedOut: make(chan struct{}),
		started: map[string]time.Time{}, titles: map[string]string{}, numbers: map[string]int{}, told: map[string]bool{}, rejected: map[string]string{}, printed: map[string]*strings.Builder{},
		arrived: map[string]bool{}, approved: s.record.approvals(), active: s.opts.Now(),
	}
}

// replay says whether what comes now is only repeated.
func (c *client) replay(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaying = on
}

// opened notes that the session is open.
func (c *client) opened(sessionID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionID = sessionID
}

// begin begins the turn.
func (c *client) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaying, c.active = false, c.s.opts.Now()
}

// Update implements acp.Handler.
func (c *client) Update(u acp.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaying {
		return
	}
	c.active = c.s.opts.Now()
	trail := c.s.trail
	switch u.Kind {
	case acp.UpdateUserMessage: // the prompt, which is recorded
	case acp.UpdateAgentMessage, acp.UpdateAgentThought:
		text, ok := u.Text()
		if !ok {
			trail.Add(agent.EventUpdate, u.SessionID, "", u.Raw)
			return
		}
		if c.said += int64(len(text)); c.said > c.s.outputBytes() {
			c.exceed(fault.Newf(fault.OutputLimit, "the agent said more than %d bytes (limits.outputBytes)", c.s.outputBytes()))
			return
		}
		kind := agent.EventMessage
		if u.Kind == acp.UpdateAgentThought {
			kind = agent.EventThought
		}
		trail.Say(kind, u.SessionID, text)
	case acp.UpdateToolCall, acp.UpdateToolCallUpdate:
		if call := c.tools.Apply(u); call != nil {
			c.print(call.ID, u)
			c.toolCall(u.SessionID, call)
		}
	case acp.UpdatePlan:
		trail.Add(agent.EventPlan, u.SessionID, "", u.Raw)
	case acp.UpdateUsage:
		c.usage = u.Raw
		trail.Add(agent.EventUsage, u.SessionID, "", u.Raw)
	default:
		trail.Add(agent.EventUpdate, u.SessionID, "", u.Raw)
	}
}

// exceed notes that the agent has said or sent too much, and ends the turn. The caller holds mu.
func (c *client) exceed(f *fault.Fault) {
	if c.excess == nil {
		c.excess = f
		c.limit(f)
	}
}

// tooMuch is the fault of an agent that has said or sent too much; nil if it has not.
func (c *client) tooMuch() *fault.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.excess
}

// limit ends the turn; the first one counts.
func (c *client) limit(f *fault.Fault) {
	select {
	case c.limits <- f:
	default:
	}
}

// toolCall records a call when it has ended, once. The caller holds mu.
func (c *client) toolCall(sessionID string, call *acp.ToolCall) {
	if _, ok := c.started[call.ID]; !ok {
		c.numbers[call.ID] = len(c.started)
		c.started[call.ID], c.titles[call.ID] = c.s.opts.Now(), call.Title
	}
	if call.Ended() && !c.told[call.ID] {
		c.tell(sessionID, call)
	}
}

// maxPrinted is how much of what a call prints besides its updates is kept.
const maxPrinted = 1 << 20

// print keeps what codex sends of the output of commands: pieces of it in _meta. The caller holds mu.
func (c *client) print(id string, u acp.Update) {
	change, _ := u.ToolCall()
	var meta struct {
		Output struct {
			Data string `json:"data"`
		} `json:"terminal_output_delta"`
	}
	if json.Unmarshal(change.Meta, &meta) != nil || meta.Output.Data == "" {
		return
	}
	if c.printed[id] == nil {
		c.printed[id] = &strings.Builder{}
	}
	if b := c.printed[id]; b.Len() < maxPrinted {
		b.WriteString(meta.Output.Data)
	}
}

// finish records the calls that have not ended, and what is to be reported. No update comes any more.
func (c *client) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		c.over.Stop()
	}
	for _, call := range c.tools.Open() {
		if !c.told[call.ID] {
			c.tell(c.sessionID, call)
		}
	}
	for _, call := range c.calls.spans(c.spanName) {
		c.s.trail.Span(call)
	}
	info := c.s.info
	info.ToolCalls = len(c.started)
	if info.AgentUsage == nil {
		info.AgentUsage = c.usage
	}
	for i := range info.MCPServers {
		info.MCPServers[i].Calls = c.calls.served(info.MCPServers[i].Name, c.s.access != nil)
	}
}

// waits is what the turn has asked a person for or has started, and what is left of what was waited for before.
func (c *client) waits(before []asked) (now, left []asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked), c.stillWaited(before)
}

// RequestPermission implements acp.Handler.
func (c *client) RequestPermission(ctx context.Context, req acp.PermissionRequest) (acp.PermissionOutcome, error) {
	call := req.ToolCall
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = c.s.opts.Now()
	if c.replaying {
		return acp.PermissionOutcome{}, nil
	}
	// What the request leaves out the call may have said before.
	for _, known := range c.tools.All() {
		if known.ID == call.ID {
			merged := *known
			merged.Merge(call)
			call = merged
		}
	}
	outcome, by := c.permit(ctx, call, req.Options)
	if by == bySuspension || by == byPolicy && c.s.entry.Permissions != agent.PolicyAllow {
		c.rejected[call.ID] = by
	}
	t := c.s.toolOf(&call, c.titles[call.ID])
	c.s.trail.Add(agent.EventPermission, req.SessionID, "", map[string]any{
		"toolCallId": call.ID, "title": call.Title, "kind": call.Kind, "server": t.Server, "tool": t.Name, "input": t.Input, "optionId": outcome.OptionID, "by": by,
	})
	return outcome, nil
}

// wait notes what the turn has asked a person for. The caller holds mu.
func (c *client) wait(a asked) {
	if slices.ContainsFunc(c.asked, func(b asked) bool { return b.Interrupt == a.Interrupt }) {
		return
	}
	c.asked = append(c.asked, a)
	if c.over == nil {
		c.over = time.AfterFunc(c.s.bounds.suspend, func() { close(c.waitedOut) })
	}
}

// elicit answers a question.
func (c *client) elicit(_ context.Context, req acp.ElicitationRequest) (acp.ElicitationResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = c.s.opts.Now()
	result := acp.ElicitationResult{Action: acp.ElicitDecline}
	if c.s.entry.Elicitation == agent.PolicySuspend && !c.replaying {
		in := req.Schema
		if req.URL != "" {
			in, _ = json.Marshal(map[string]string{"url": req.URL}) // a string always marshals
		}
		c.wait(newAsked(askedQuestion, req.Message, req.Mode, req.Message, in))
		result.Action = acp.ElicitCancel
	}
	c.s.trail.Add(agent.EventElicitation, req.SessionID, req.Message, map[string]any{"mode": req.Mode, "action": result.Action})
	return result, nil
}

// watchIdle ends the turn when nothing happens for too long, until stop is called. A tool that runs and a model that thinks are something.
func (c *client) watchIdle() (stop func()) {
	limit := time.Duration(c.s.entry.IdleTimeout)
	if limit <= 0 {
		limit = c.s.bounds.idle
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = time.AfterFunc(limit, func() { c.checkIdle(limit) })
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Stop()
		c.idle = nil
	}
}

func (c *client) checkIdle(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		return // the turn has just ended
	}
	now, model := c.s.opts.Now(), c.s.model
	switch {
	case len(c.tools.Open()) > 0, model != nil && model.Busy():
		c.active = now
	case model != nil:
		for _, call := range model.Calls() {
			if end := call.Time.Add(time.Duration(call.LatencyMs) * time.Millisecond); end.After(c.active) {
				c.active = end
			}
		}
	}
	if rest := limit - now.Sub(c.active); rest > 0 {
		c.idle.Reset(rest)
		return
	}
	c.limit(fault.Newf(fault.Idle, "nothing came from the agent for %v (idleTimeout)", limit))
}

func (s *segment) outputBytes() int64 {
	if s.seg.OutputBytes > 0 {
		return s.seg.OutputBytes
	}
	return agent.DefaultOutputBytes
}
