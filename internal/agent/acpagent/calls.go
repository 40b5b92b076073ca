package acpagent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
)

// callLog has the tool calls of a segment twice: as the agent reports them, and as the gateway saw
// those that went through it. Evaluators get each call once, in the gateway's version if there is
// one.
type callLog struct {
	reported []reportedCall
	seen     []*seenCall
	// results holds the results of work that earlier segments have started.
	results []record.Call
}

// reportedCall is a call that the agent has reported. It is recorded when the call or the segment
// has ended.
type reportedCall struct {
	record.Call
	// number is the number of its announcement.
	number int
	tool   tool
	seen   *seenCall
	// rejected says who did not allow the call, as a permission's "by" does; empty if it was
	// allowed.
	rejected string
}

// seenCall is a call that the gateway saw.
type seenCall struct {
	suspend.Record
	// reportedID is the id of the call that the agent reports; empty if none is known.
	reportedID string
}

// find returns the seen call that the agent reports under an id: the one for which the agent gave
// the server the same id, else the first that matches.
func (l *callLog) find(id string, t tool) *seenCall {
	var found *seenCall
	for _, s := range l.seen {
		switch {
		case s.reportedID == id:
			return s
		case s.reportedID != "":
		case namesCall(s.Meta, id):
			found = s
		case found == nil && s.is(t):
			found = s
		}
	}
	if found != nil {
		found.reportedID = id
	}
	return found
}

// is reports whether the agent may have reported the call as one of the tool t. If the agent does
// not name the server, the arguments decide. A call of which it tells nothing at all matches any.
func (s *seenCall) is(t tool) bool {
	empty := isEmptyInput(t.Input)
	same := !empty && jsonobj.Canonical(t.Input) == jsonobj.Canonical(s.Arguments)
	if t.Server != "" {
		return t.Server == s.Server && t.Name == s.Tool && (empty || same)
	}
	return same && (t.Name == "" || strings.Contains(t.Name, s.Tool)) || t.Name == "" && t.Input == nil
}

// namesCall reports whether the _meta of a call has the agent's id of the call, as claude and codex
// send it.
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

// isEmptyInput reports whether arguments are missing or empty. Some agents ask before they know
// them.
func isEmptyInput(in json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "{}", "[]"}, jsonobj.Canonical(in))
}

// spans returns the calls of the segment for evaluators, in the order in which the agent has
// announced them. Calls that the agent does not report are ordered by their time. A call that a
// person has to allow first is left out, since it comes again.
func (l *callLog) spans(nameOf func(server, name string) string) (all []record.Call) {
	for i := range l.reported {
		if t := &l.reported[i]; t.seen == nil {
			t.seen = l.find(t.ID, t.tool) // the gateway may have been slower
		}
	}
	slices.SortStableFunc(l.reported, func(a, b reportedCall) int { return a.number - b.number })
	for _, t := range l.reported {
		switch {
		case t.seen != nil && !t.seen.Refused:
			all = append(all, t.seen.call(t.ID, nameOf(t.seen.Server, t.seen.Tool)))
		case t.seen == nil && t.rejected != bySuspension:
			t.Name = nameOf(t.Server, t.Name)
			all = append(all, t.Call)
		}
	}
	for i, s := range l.seen {
		if s.reportedID == "" && !s.Refused {
			at := slices.IndexFunc(all, func(c record.Call) bool { return c.StartedAt.After(s.StartedAt) })
			if at < 0 {
				at = len(all)
			}
			all = slices.Insert(all, at, s.call(fmt.Sprintf("mcp-%d-%d", s.StartedAt.UnixNano(), i), nameOf(s.Server, s.Tool)))
		}
	}
	return append(slices.Clone(l.results), all...)
}

// call returns a seen call as evaluators know it, by a name, and under id unless it has an id of
// its own. A call that has only started work has no output yet: the output comes with the work's
// result, under the same id.
func (s *seenCall) call(id, name string) record.Call {
	out := record.Call{ID: cmp.Or(workSpan(s.CallID), id), Name: name, Server: s.Server, Status: acp.ToolCompleted, Mock: s.Mock,
		Input: s.Arguments, StartedAt: s.StartedAt.UTC(), DurationMs: &s.DurationMs}
	switch text, failed := toolserver.ResultText(s.Result); {
	case s.Started:
		out.Status = acp.ToolInProgress
	case s.Error != nil:
		var said struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(s.Error, &said) // the gateway has made it
		out.Status, out.Output = acp.ToolFailed, jsonobj.Quote(said.Message)
	default:
		if failed {
			out.Status = acp.ToolFailed
		}
		out.Output = jsonobj.Quote(text)
	}
	return out
}

// workSpan returns the id under which evaluators know a call that may have started work, in all
// segments. It is empty for other calls.
func workSpan(callID string) string {
	if callID == "" {
		return ""
	}
	return "call-" + callID
}

// served counts the calls of a server's tools. It leaves out calls that a person or a policy did
// not allow, since they were not made.
func (l *callLog) served(server string, behindGateway bool) (n int) {
	if behindGateway {
		for _, s := range l.seen {
			if s.Server == server && !s.Refused {
				n++
			}
		}
		return n
	}
	for _, t := range l.reported {
		if t.Server == server && t.rejected == "" {
			n++
		}
	}
	return n
}
