package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/acp"
)

// client is our side of the conversation: it records what the agent does and answers what it asks.
type client struct {
	s    *acpSegment
	caps acp.Capabilities
	// limits carries the limit that ends the turn.
	limits chan *Fault
	// waitedOut is closed when the turn has gone on for too long after it has asked for something that waits.
	waitedOut chan struct{}

	mu sync.Mutex
	// replaying says that what comes was recorded before.
	replaying bool
	tools     acp.ToolCalls
	started   map[string]time.Time
	told      map[string]bool
	calls     int
	// open counts the tool calls that have not ended, asking the questions that are being answered.
	asking int
	active time.Time
	// said counts the bytes of what the agent said.
	said  int64
	asked []asked
	over  *time.Timer
}

func newClient(s *acpSegment) *client {
	return &client{s: s, limits: make(chan *Fault, 1), waitedOut: make(chan struct{}), started: map[string]time.Time{}, told: map[string]bool{}, active: s.opts.Now()}
}

// replay says whether what comes now is only repeated.
func (c *client) replay(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaying = on
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
			trail.add(EventUpdate, u.SessionID, "", u.Raw)
			return
		}
		if c.said += int64(len(text)); c.said > c.s.outputBytes() {
			c.limit(&Fault{FaultOutputLimit, fmt.Sprintf("the agent said more than %d bytes (limits.outputBytes)", c.s.outputBytes())})
			return
		}
		kind := EventMessage
		if u.Kind == acp.UpdateAgentThought {
			kind = EventThought
		}
		trail.say(kind, u.SessionID, text)
	case acp.UpdateToolCall, acp.UpdateToolCallUpdate:
		if call := c.tools.Apply(u); call != nil {
			c.toolCall(u.SessionID, call)
		}
	case acp.UpdatePlan:
		trail.add(EventPlan, u.SessionID, "", u.Raw)
	case acp.UpdateUsage:
		c.s.info.AgentUsage = u.Raw
		trail.add(EventUsage, u.SessionID, "", u.Raw)
	default:
		trail.add(EventUpdate, u.SessionID, "", u.Raw)
	}
}

// limit ends the turn; the first one counts.
func (c *client) limit(f *Fault) {
	select {
	case c.limits <- f:
	default:
	}
}

// toolCall records a call when it has ended, once. The caller holds mu.
func (c *client) toolCall(sessionID string, call *acp.ToolCall) {
	if _, ok := c.started[call.ID]; !ok {
		c.started[call.ID] = c.s.opts.Now()
		c.calls++
	}
	if call.Ended() && !c.told[call.ID] {
		c.told[call.ID] = true
		c.s.trail.call(sessionID, c.record(call))
	}
}

func (c *client) record(call *acp.ToolCall) Call {
	out := Call{
		ID: call.ID, Title: call.Title, Kind: call.Kind, Status: call.Status, Input: call.RawInput, Output: call.RawOutput, Content: call.Content,
		Locations: call.Locations, StartedAt: c.started[call.ID].UTC(),
	}
	out.Name, out.Server = c.s.toolName(call)
	for i := range c.s.info.MCPServers {
		if c.s.info.MCPServers[i].Name == out.Server {
			c.s.info.MCPServers[i].Calls++
		}
	}
	if call.Ended() {
		ms := c.s.opts.Now().Sub(c.started[call.ID]).Milliseconds()
		out.DurationMs = &ms
	}
	return out
}

// flush ends the message that is being said.
func (c *client) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.trail.endText()
}

// finish records the calls that have not ended. No update comes any more.
func (c *client) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		c.over.Stop()
	}
	for _, call := range c.tools.Open() {
		if !c.told[call.ID] {
			c.told[call.ID] = true
			c.s.trail.call(c.s.record.SessionID, c.record(call))
		}
	}
}

// waits is what the turn has asked a person for.
func (c *client) waits() []asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// RequestPermission implements acp.Handler.
func (c *client) RequestPermission(_ context.Context, req acp.PermissionRequest) (acp.PermissionOutcome, error) {
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
	outcome, by := c.permit(call, req.Options)
	c.s.trail.add(EventPermission, req.SessionID, "", map[string]any{
		"toolCallId": call.ID, "title": call.Title, "kind": call.Kind, "input": call.RawInput, "optionId": outcome.OptionID, "by": by,
	})
	return outcome, nil
}

// permit decides on a request; by says who did.
func (c *client) permit(call acp.ToolCall, options []acp.PermissionOption) (outcome acp.PermissionOutcome, by string) {
	switch c.s.entry.Permissions {
	case PolicyAllow:
		return acp.Allow(options), "policy"
	case PolicySuspend:
	default:
		return acp.Deny(options), "policy"
	}
	a := newAsked(askedPermission, call.Title, call.Kind, call.RawInput)
	if i := slices.Index(c.s.record.Allowed, a.Interrupt); i >= 0 {
		c.s.record.Allowed = slices.Delete(c.s.record.Allowed, i, i+1)
		if once, ok := acp.Once(options); ok {
			return once, "person"
		}
		return acp.Allow(options), "person"
	}
	c.wait(a)
	return acp.Deny(options), "suspended"
}

// wait notes what the turn has asked a person for. The caller holds mu.
func (c *client) wait(a asked) {
	if slices.ContainsFunc(c.asked, func(b asked) bool { return b.Interrupt == a.Interrupt }) {
		return
	}
	c.asked = append(c.asked, a)
	if c.over == nil {
		c.over = time.AfterFunc(suspendGrace, func() { close(c.waitedOut) })
	}
}

// elicit answers a question.
func (c *client) elicit(_ context.Context, req acp.ElicitationRequest) (acp.ElicitationResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = c.s.opts.Now()
	result := acp.ElicitationResult{Action: acp.ElicitDecline}
	if c.s.entry.Elicitation == PolicySuspend && !c.replaying {
		c.wait(newAsked(askedQuestion, req.Message, req.Mode, req.Schema))
		result.Action = acp.ElicitCancel
	}
	c.s.trail.add(EventElicitation, req.SessionID, req.Message, map[string]any{"mode": req.Mode, "action": result.Action})
	return result, nil
}

// watchIdle ends the turn when nothing happens for too long. A tool that runs, a question that is being answered and a model that thinks are
// something.
func (c *client) watchIdle() *time.Timer {
	idle := time.Duration(c.s.entry.IdleTimeout)
	if idle <= 0 {
		idle = defaultIdle
	}
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(idle, func() {
		<-ready
		c.mu.Lock()
		quiet := c.s.opts.Now().Sub(c.active)
		busy := len(c.tools.Open()) > 0 || c.asking > 0
		c.mu.Unlock()
		if c.s.model != nil && c.s.model.Busy() {
			busy = true
		}
		switch {
		case busy:
			timer.Reset(idle)
		case quiet < idle:
			timer.Reset(idle - quiet)
		default:
			c.limit(&Fault{FaultIdle, fmt.Sprintf("nothing came from the agent for %v (idleTimeout)", idle)})
		}
	})
	close(ready)
	return timer
}

// toolName tells the name of a tool and the server that it belongs to.
func (s *acpSegment) toolName(call *acp.ToolCall) (name, server string) {
	names := []string{call.Name, metaToolName(call.Meta), call.Title}
	for _, declared := range s.servers {
		if s.entry.ToolName == "" {
			break
		}
		before, after, _ := strings.Cut(strings.ReplaceAll(s.entry.ToolName, "{server}", declared.Name), "{tool}")
		for _, n := range names {
			if rest, ok := strings.CutPrefix(n, before); ok && before != "" && strings.HasSuffix(rest, after) && rest != after {
				return strings.TrimSuffix(rest, after), declared.Name
			}
			// gemini: "tool (server MCP Server)"
			if tool, ok := strings.CutSuffix(n, " ("+declared.Name+" MCP Server)"); ok {
				return tool, declared.Name
			}
			// a plain "server.tool" or "server/tool"
			for _, separator := range []string{".", "/"} {
				if tool, ok := strings.CutPrefix(n, declared.Name+separator); ok && !strings.ContainsAny(tool, " \t") {
					return tool, declared.Name
				}
			}
		}
	}
	for _, n := range names {
		if n != "" {
			return n, ""
		}
	}
	return call.Kind, ""
}

// metaToolName is the name that claude puts into _meta.
func metaToolName(meta json.RawMessage) string {
	var m map[string]json.RawMessage
	if json.Unmarshal(meta, &m) != nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		var vendor struct {
			ToolName string `json:"toolName"`
		}
		if json.Unmarshal(m[key], &vendor) == nil && vendor.ToolName != "" {
			return vendor.ToolName
		}
	}
	return ""
}

func (s *acpSegment) outputBytes() int64 {
	if s.seg.OutputBytes > 0 {
		return s.seg.OutputBytes
	}
	return defaultOutputBytes
}
