package acpagent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// callLog has the tool calls of a segment twice: as the agent tells of them, and those that went through the gateway as the gateway saw them. Evaluators
// are given each call once, and believe the gateway. It is guarded by the client's mutex.
type callLog struct {
	told []toldCall
	seen []*seenCall
	// results are those of work that earlier segments have started.
	results []agent.Call
}

// toldCall is a call that the agent has told of, when it has ended or the segment has.
type toldCall struct {
	agent.Call
	// number is that of its announcement.
	number int
	tool   tool
	seen   *seenCall
	// rejected says who did not allow the call, as a permission's "by" does; empty if it was allowed.
	rejected string
}

// seenCall is a call that the gateway saw.
type seenCall struct {
	gateway.Record
	// name is what evaluators know the tool by.
	name string
	// told is the id of the call that the agent tells of; empty if none is known.
	told string
}

// find is the seen call that the agent tells of under an id: one whose id the agent gave the server too, else the first that can be it.
func (l *callLog) find(id string, t tool) *seenCall {
	var found *seenCall
	for _, s := range l.seen {
		switch {
		case s.told == id:
			return s
		case s.told != "":
		case namesCall(s.Meta, id):
			found = s
		case found == nil && s.is(t):
			found = s
		}
	}
	if found != nil {
		found.told = id
	}
	return found
}

// is reports whether the agent may have told of the call as one of the tool t. Where it does not name the server the arguments must tell; one of which
// it tells nothing at all may be any.
func (s *seenCall) is(t tool) bool {
	empty := isEmptyInput(t.Input)
	same := !empty && jsonobj.Canonical(t.Input) == jsonobj.Canonical(s.Arguments)
	if t.Server != "" {
		return t.Server == s.Server && t.Name == s.Tool && (empty || same)
	}
	return same && (t.Name == "" || strings.Contains(t.Name, s.Tool)) || t.Name == "" && t.Input == nil
}

// namesCall reports whether the _meta of a call has the agent's id of it, as claude's and codex's have.
func namesCall(meta json.RawMessage, id string) bool {
	var members map[string]any
	if id == "" || json.Unmarshal(meta, &members) != nil {
		return false
	}
	for _, v := range members {
		if v == id {
			return true
		}
	}
	return false
}

// isEmptyInput reports whether arguments are not told, or are none: some agents ask before they know them.
func isEmptyInput(in json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "{}", "[]"}, jsonobj.Canonical(in))
}

// saw records a call that went through the gateway.
func (c *client) saw(r gateway.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.trail.Add(agent.EventMCPCall, c.sessionID, "", r)
	c.calls.seen = append(c.calls.seen, &seenCall{Record: r, name: c.spanName(r.Server, r.Tool)})
}

// spanName is what evaluators know a server's tool by: its own name, with the server's before it where several servers have one of that name.
func (c *client) spanName(server, name string) string {
	if server != "" && c.s.access != nil && c.s.access.Sharing(name) > 1 {
		return server + "/" + name
	}
	return name
}

// record is a call as the trajectory has it. What the gateway saw of it counts more than what the agent tells.
func (c *client) record(call *acp.ToolCall) toldCall {
	t := c.s.toolOf(call, c.titles[call.ID])
	out := toldCall{number: c.numbers[call.ID], tool: t, rejected: c.rejected[call.ID], Call: agent.Call{
		ID: call.ID, Title: call.Title, Kind: call.Kind, Status: call.Status, Server: t.Server, Name: cmp.Or(t.Name, call.Title, call.Kind), Input: t.Input,
		Output: call.RawOutput, Content: call.Content, Locations: call.Locations, StartedAt: c.started[call.ID].UTC(),
	}}
	if out.seen = c.calls.find(call.ID, t); out.seen != nil {
		out.Server, out.Name = out.seen.Server, out.seen.Tool
		if out.seen.Arguments != nil {
			out.Input = out.seen.Arguments
		}
	}
	if printed := c.printed[call.ID]; printed != nil && out.Text() == "" {
		out.Output = jsonobj.Quote(printed.String())
	}
	if call.Ended() {
		ms := c.s.opts.Now().Sub(c.started[call.ID]).Milliseconds()
		out.DurationMs = &ms
	}
	return out
}

// tell records a call when it has ended, or when the segment has. The caller holds mu.
func (c *client) tell(sessionID string, call *acp.ToolCall) {
	c.told[call.ID] = true
	out := c.record(call)
	c.calls.told = append(c.calls.told, out)
	c.s.trail.Call(sessionID, out.Call)
}

// arrivedLate records the result of work that an earlier segment has started. Evaluators know it by the call that has started it.
func (c *client) arrivedLate(a asked, call agent.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.ID = cmp.Or(a.SpanID, call.ID)
	call.Name = c.spanName(call.Server, call.Name)
	c.calls.results = append(c.calls.results, call)
}

// spans are the calls of the segment for evaluators, in the order in which the agent has announced them; those of which it tells nothing, by their time.
// A call that a person has to allow first comes again.
func (l *callLog) spans(nameOf func(server, name string) string) (all []agent.Call) {
	for i := range l.told {
		if t := &l.told[i]; t.seen == nil {
			t.seen = l.find(t.ID, t.tool) // the gateway may have been slower
		}
	}
	slices.SortStableFunc(l.told, func(a, b toldCall) int { return a.number - b.number })
	for _, t := range l.told {
		switch {
		case t.seen != nil && !t.seen.Refused:
			all = append(all, t.seen.call(t.ID))
		case t.seen == nil && t.rejected != bySuspension:
			t.Name = nameOf(t.Server, t.Name)
			all = append(all, t.Call)
		}
	}
	for i, s := range l.seen {
		if s.told == "" && !s.Refused {
			at := slices.IndexFunc(all, func(c agent.Call) bool { return c.StartedAt.After(s.StartedAt) })
			if at < 0 {
				at = len(all)
			}
			all = slices.Insert(all, at, s.call(fmt.Sprintf("mcp-%d-%d", s.StartedAt.UnixNano(), i)))
		}
	}
	return append(slices.Clone(l.results), all...)
}

// call is a seen call as evaluators know it, under an id unless it has one of its own. One that has only started work has no output yet: that comes with the work's result, under the same id.
func (s *seenCall) call(id string) agent.Call {
	out := agent.Call{ID: cmp.Or(workSpan(s.CallID), id), Name: s.name, Server: s.Server, Status: acp.ToolCompleted, Input: s.Arguments, StartedAt: s.StartedAt.UTC(), DurationMs: &s.DurationMs}
	switch text, failed := resultText(s.Result); {
	case s.Started:
		out.Status = acp.ToolInProgress
	case s.Error != nil:
		var said struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(s.Error, &said) // made by the gateway
		out.Status, out.Output = acp.ToolFailed, jsonobj.Quote(said.Message)
	default:
		if failed {
			out.Status = acp.ToolFailed
		}
		out.Output = jsonobj.Quote(text)
	}
	return out
}

// workSpan is the id under which evaluators know a call that may have started work, in all segments; empty for other calls.
func workSpan(callID string) string {
	if callID == "" {
		return ""
	}
	return "call-" + callID
}

// served counts the calls of a server's tools. Those that a person or a policy did not allow were not made.
func (l *callLog) served(server string, behindGateway bool) (n int) {
	if behindGateway {
		for _, s := range l.seen {
			if s.Server == server && !s.Refused {
				n++
			}
		}
		return n
	}
	for _, t := range l.told {
		if t.Server == server && t.rejected == "" {
			n++
		}
	}
	return n
}
