package acpagent

import (
	"cmp"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// callRecorder records the tool calls of a segment, as the agent reports them and as the gateway
// sees them.
type callRecorder struct {
	now     func() time.Time
	trail   *record.Trajectory
	names   toolNames
	servers *servers

	mu sync.Mutex
	// sessionID is the id of the session once it is open.
	sessionID string
	tools     acp.ToolCalls
	log       callLog
	// announced holds the announced calls by their ids.
	announced map[string]*announcedCall
	// rejected maps the id of a call to who has rejected it.
	rejected map[string]string
}

// announcedCall is a recorder's data of a call that the agent reports.
type announcedCall struct {
	// number counts the calls in the order of their announcement.
	number  int
	started time.Time
	// title is the title with which the call was announced. tool is the current state of the call.
	title string
	tool  tool
	// reported says that the call is in the trajectory.
	reported bool
	// printed is the output that came outside the updates' content.
	printed strings.Builder
}

// newCallRecorder makes a recorder. Its trail is opened before the first call.
func newCallRecorder(now func() time.Time, names toolNames, servers *servers) *callRecorder {
	return &callRecorder{now: now, names: names, servers: servers, announced: map[string]*announcedCall{},
		rejected: map[string]string{}}
}

// opened notes that the session is open.
func (r *callRecorder) opened(sessionID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessionID = sessionID
}

// isOf reports whether a session is the open one. While none is open, any session matches.
func (r *callRecorder) isOf(sessionID string) bool {
	own := r.session()
	return own == "" || own == sessionID
}

// session returns the id of the open session.
func (r *callRecorder) session() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessionID
}

// update takes in the agent's report of a call, and records the call once when it has ended.
func (r *callRecorder) update(u acp.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call := r.tools.Apply(u)
	if call == nil {
		return
	}
	known := r.announced[call.ID]
	if known == nil {
		known = &announcedCall{number: len(r.announced), started: r.now(), title: call.Title}
		r.announced[call.ID] = known
	}
	known.tool = r.names.toolOf(call, known.title)
	known.print(u)
	if call.Ended() && !known.reported {
		r.report(u.SessionID, call)
	}
}

// maxPrinted is how much output of a call outside the updates' content is kept.
const maxPrinted = 1 << 20

// print keeps the output of commands that codex sends in pieces in _meta.
func (c *announcedCall) print(u acp.Update) {
	change, _ := u.ToolCall()
	var meta struct {
		Output struct {
			Data string `json:"data"`
		} `json:"terminal_output_delta"`
	}
	if json.Unmarshal(change.Meta, &meta) == nil && c.printed.Len() < maxPrinted {
		c.printed.WriteString(meta.Output.Data)
	}
}

// report records a call when the call or the segment has ended. The caller holds mu.
func (r *callRecorder) report(sessionID string, call *acp.ToolCall) {
	r.announced[call.ID].reported = true
	out := r.record(call)
	r.log.reported = append(r.log.reported, out)
	r.trail.Call(sessionID, out.Call)
}

// record returns a call as the trajectory has it. The gateway's record of it has precedence over
// the agent's report. The caller holds mu.
func (r *callRecorder) record(call *acp.ToolCall) reportedCall {
	known := r.announced[call.ID]
	t := known.tool
	out := reportedCall{number: known.number, tool: t, rejected: r.rejected[call.ID], Call: record.Call{
		ID: call.ID, Title: call.Title, Kind: call.Kind, Status: call.Status, Server: t.Server,
		Name: cmp.Or(t.Name, call.Title, call.Kind), Input: t.Input,
		Output: call.RawOutput, Content: call.Content, Locations: call.Locations, StartedAt: known.started.UTC(),
	}}
	if out.seen = r.log.find(call.ID, t); out.seen != nil {
		out.Server, out.Name, out.Mock = out.seen.Server, out.seen.Tool, out.seen.Mock
		if out.seen.Arguments != nil {
			out.Input = out.seen.Arguments
		}
	}
	if known.printed.Len() > 0 && out.Text() == "" {
		out.Output = jsonobj.Quote(known.printed.String())
	}
	if call.Ended() {
		ms := r.now().Sub(known.started).Milliseconds()
		out.DurationMs = &ms
	}
	return out
}

// complete adds the agent's earlier reports of a call to it.
func (r *callRecorder) complete(call acp.ToolCall) acp.ToolCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.tools.All() {
		if known.ID == call.ID {
			merged := *known
			merged.Merge(call)
			return merged
		}
	}
	return call
}

// tool returns the tool of a call for which an agent requests permission. If the request does not
// name a server's tool, the announcement of the call may have named it. Otherwise the titles may
// name a tool that a server lists.
func (r *callRecorder) tool(call *acp.ToolCall) tool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.announced[call.ID]
	if known == nil {
		known = &announcedCall{}
	}
	t := r.names.toolOf(call, known.title)
	if t.Name == "" && known.tool.Server != "" {
		t = known.tool
	}
	return r.servers.listed(t, call.Title)
}

// reject notes who has rejected a call.
func (r *callRecorder) reject(id, by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rejected[id] = by
}

// running reports whether a call has not ended.
func (r *callRecorder) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tools.Open()) > 0
}

// saw records a call that went through the gateway.
func (r *callRecorder) saw(call suspend.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trail.Add(record.EventMCPCall, r.sessionID, "", call)
	r.log.seen = append(r.log.seen, &seenCall{Record: call})
}

// spanName returns the name by which evaluators know a server's tool: its own name, preceded by the
// server's if several servers have a tool of that name.
func (r *callRecorder) spanName(server, name string) string {
	if server != "" && r.servers.sharing(name) > 1 {
		return server + "/" + name
	}
	return name
}

// resultArrived records the result of work that an earlier segment has started. Evaluators know the
// work by the call that has started it.
func (r *callRecorder) resultArrived(started request, call record.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.ID = cmp.Or(started.SpanID, call.ID)
	call.Name = r.spanName(call.Server, call.Name)
	r.log.results = append(r.log.results, call)
}

// idOf returns the agent's own id of the call that has started work. If several calls match, it is
// the last.
func (r *callRecorder) idOf(w *wait.Work) (id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.tools.All() {
		t := r.announced[call.ID].tool
		if t.Server == w.Server && t.Name == w.Tool &&
			(isEmptyInput(t.Input) || jsonobj.Canonical(t.Input) == jsonobj.Canonical(w.Arguments)) {
			id = call.ID
		}
	}
	return id
}

// finish records the calls that have not ended, and counts all calls in info. It is called when no
// further update comes.
func (r *callRecorder) finish(info *record.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.tools.Open() {
		if !r.announced[call.ID].reported {
			r.report(r.sessionID, call)
		}
	}
	for _, call := range r.log.spans(r.spanName) {
		r.trail.Span(call)
	}
	info.ToolCalls = len(r.announced)
	for i := range info.MCPServers {
		info.MCPServers[i].Calls = r.log.served(info.MCPServers[i].Name, r.servers.behindGateway())
	}
}
