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
	// served counts the calls by the server that they are for; "" is the agent itself.
	served map[string]int
	// usage is what the agent reported last.
	usage json.RawMessage
	// active is when something happened last, idle looks at that; it is nil outside the turn.
	active time.Time
	idle   *time.Timer
	// said counts the bytes of what the agent said.
	said   int64
	excess *Fault
	asked  []asked
	over   *time.Timer
}

func newClient(s *acpSegment) *client {
	return &client{
		s: s, limits: make(chan *Fault, 1), waitedOut: make(chan struct{}),
		started: map[string]time.Time{}, told: map[string]bool{}, served: map[string]int{}, active: s.opts.Now(),
	}
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
			c.exceed(&Fault{FaultOutputLimit, fmt.Sprintf("the agent said more than %d bytes (limits.outputBytes)", c.s.outputBytes())})
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
		c.usage = u.Raw
		trail.add(EventUsage, u.SessionID, "", u.Raw)
	default:
		trail.add(EventUpdate, u.SessionID, "", u.Raw)
	}
}

// exceed notes that the agent has said or sent too much, and ends the turn. The caller holds mu.
func (c *client) exceed(f *Fault) {
	if c.excess == nil {
		c.excess = f
		c.limit(f)
	}
}

// tooMuch is the fault of an agent that has said or sent too much; nil if it has not.
func (c *client) tooMuch() *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.excess
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
	c.served[out.Server]++
	if call.Ended() {
		ms := c.s.opts.Now().Sub(c.started[call.ID]).Milliseconds()
		out.DurationMs = &ms
	}
	return out
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
			c.told[call.ID] = true
			c.s.trail.call(c.s.record.SessionID, c.record(call))
		}
	}
	info := c.s.info
	info.ToolCalls = len(c.started)
	if info.AgentUsage == nil {
		info.AgentUsage = c.usage
	}
	for i := range info.MCPServers {
		info.MCPServers[i].Calls = c.served[info.MCPServers[i].Name]
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
	a := newAsked(askedPermission, call.Title, call.Kind, c.s.subject(&call), call.RawInput)
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
		c.over = time.AfterFunc(c.s.bounds.suspend, func() { close(c.waitedOut) })
	}
}

// elicit answers a question.
func (c *client) elicit(_ context.Context, req acp.ElicitationRequest) (acp.ElicitationResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = c.s.opts.Now()
	result := acp.ElicitationResult{Action: acp.ElicitDecline}
	if c.s.entry.Elicitation == PolicySuspend && !c.replaying {
		in := req.Schema
		if req.URL != "" {
			in, _ = json.Marshal(map[string]string{"url": req.URL}) // a string always marshals
		}
		c.wait(newAsked(askedQuestion, req.Message, req.Mode, req.Message, in))
		result.Action = acp.ElicitCancel
	}
	c.s.trail.add(EventElicitation, req.SessionID, req.Message, map[string]any{"mode": req.Mode, "action": result.Action})
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
	c.limit(&Fault{FaultIdle, fmt.Sprintf("nothing came from the agent for %v (idleTimeout)", limit)})
}

// subject is what a request for permission is about beside its kind and input: the tool, where that is known. Of the tools that have no kind, or
// need no input, the title must do, so that an approval of one is none of another.
func (s *acpSegment) subject(call *acp.ToolCall) string {
	name, server := s.toolName(call)
	switch {
	case server != "":
		return server + "." + name
	case call.Name != "" || metaToolName(call.Meta) != "":
		return name
	case slices.Contains([]string{"", "other", "tool"}, call.Kind), slices.Contains([]string{"", "null", "{}", "[]"}, canonicalJSON(call.RawInput)):
		return call.Title
	}
	return ""
}

// toolName tells the name of a tool and the server that it belongs to: of several whose names fit, the one with the longest.
func (s *acpSegment) toolName(call *acp.ToolCall) (name, server string) {
	names := slices.DeleteFunc([]string{call.Name, metaToolName(call.Meta), call.Title}, func(n string) bool { return n == "" })
	for _, declared := range s.servers {
		if len(declared.Name) <= len(server) {
			continue
		}
		for _, n := range names {
			if tool, ok := toolOf(n, declared.Name, s.entry.ToolName); ok {
				name, server = tool, declared.Name
				break
			}
		}
	}
	switch {
	case server != "":
		return name, server
	case len(names) > 0:
		return names[0], ""
	}
	return call.Kind, ""
}

// toolOf is the tool's own part of a name, if that has the form in which an agent names the tools of a server.
func toolOf(name, server, form string) (tool string, ok bool) {
	forms := []string{
		form,                                 // as the entry says
		"{tool} ({server} MCP Server)",       // the titles of gemini
		"{server}.{tool}", "{server}/{tool}", // those of codex and others
	}
	for _, f := range forms {
		before, after, has := strings.Cut(strings.ReplaceAll(f, "{server}", server), "{tool}")
		if !has || !strings.Contains(f, "{server}") || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) || len(name) <= len(before)+len(after) {
			continue
		}
		if tool = name[len(before) : len(name)-len(after)]; !strings.ContainsAny(tool, " \t\n") {
			return tool, true
		}
	}
	return "", false
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
