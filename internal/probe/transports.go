package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
)

// The names of facts, which are a part of the report's format.
const (
	FactAdvertised  = "advertised"
	FactSession     = "session opened"
	FactToken       = "token sent"
	FactSeen        = "tool seen by the model"
	FactPermission  = "permission asked"
	FactArrived     = "call arrived"
	FactShown       = "result shown to the model"
	FactUsage       = "usage told"
	FactWaits       = "session/new waits"
	FactFirst       = "tools in the first request"
	FactTold        = "the agent says so"
	FactReturned    = "prompt returns"
	FactServerTold  = "server told"
	FactCallClosed  = "tool call closed"
	FactModelLeft   = "model request aborted"
	FactReplay      = "history replayed"
	FactHistory     = "history complete"
	FactNewServer   = "new server used"
	FactOldServer   = "old server left alone"
	FactRepeated    = "calls repeated"
	FactEndOfInput  = "on end of stdin"
	FactTerm        = "on SIGTERM"
	FactAfterTerm   = "after SIGTERM"
	FactAfterKill   = "after SIGKILL"
	FactMethods     = "authentication"
	FactLoad        = "session/load"
	FactResume      = "session/resume"
	FactClose       = "session/close"
	FactList        = "session/list"
	FactFork        = "session/fork"
	FactDelete      = "session/delete"
	FactHTTP        = "MCP over http"
	FactSSE         = "MCP over sse"
	FactInitialized = "answered"
)

const (
	notCalled = "the model was not called"
	noRemote  = "the agent takes only servers over stdio"
)

// askInitialize asks what the agent says of itself.
func askInitialize(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	caps := a.initialized.Capabilities
	c.Verdict = Yes
	c.add(FactInitialized, Yes, a.started, "protocol version %d, %s %s",
		acp.ProtocolVersion, a.initialized.Agent.Name, a.initialized.Agent.Version)
	for _, f := range []struct {
		name string
		has  bool
	}{{FactLoad, caps.LoadSession}, {FactResume, caps.Resume}, {FactClose, caps.Close}, {FactHTTP, caps.HTTP},
		{FactSSE, caps.SSE}} {
		c.add(f.name, whether(f.has), timeless, "as advertised")
	}
	var methods []string
	for _, m := range a.initialized.AuthMethods {
		methods = append(methods, m.ID)
	}
	c.add(FactMethods, fmt.Sprint(len(methods)), timeless, "%s", strings.Join(methods, ", "))
	return nil
}

// transport asks whether the agent honours a transport of MCP servers.
func transport(t acp.Transport) func(context.Context, *rig, *Check) error {
	return func(ctx context.Context, r *rig, c *Check) error {
		a, err := r.start(ctx)
		if err != nil {
			return err
		}
		c.Verdict = No
		if !a.initialized.Capabilities.Accepts(t) {
			c.add(FactAdvertised, No, timeless, "")
			c.Detail = notAdvertised
			return nil
		}
		c.add(FactAdvertised, Yes, timeless, "")
		s, err := r.serve(t, 0)
		if err != nil {
			return err
		}
		session, took, err := a.open(ctx, s)
		if err != nil {
			return err
		}
		c.add(FactSession, Yes, took, "")
		if err := s.awaitTools(ctx); err != nil {
			return err
		}
		turn, err := a.prompt(ctx, session, call(s.tool, "{}")+" [[SAY the call is over]]")
		if err != nil {
			return err
		}
		log, err := s.log()
		if err != nil {
			return err
		}
		if t != onStdio {
			c.add(FactToken, whether(admitted(log)), timeless, "%s", offered(log))
		}
		c.addSeen(turn, s)
		asked := a.asks()
		c.add(FactPermission, whether(len(asked) > 0), timeless, "%s", strings.Join(asked, ", "))
		c.addArrived(log, s.tool)
		c.addShown(turn, s.marker)
		c.add(FactUsage, whether(turn.toldUsage()), timeless, "")
		if c.Detail = c.missing(FactSeen, FactArrived, FactShown); c.Detail == "" {
			c.Verdict = Yes
		}
		return nil
	}
}

// missing names the facts whose verdict is no.
func (c *Check) missing(names ...string) string {
	names = slices.DeleteFunc(names, func(name string) bool { return c.Fact(name) != No })
	if len(names) == 0 {
		return ""
	}
	return "not: " + strings.Join(names, ", ")
}

// admitted reports whether the client came with the token.
func admitted(log []fakemcp.Entry) bool {
	return slices.ContainsFunc(log, func(e fakemcp.Entry) bool { return e.Method != fakemcp.MethodRefused })
}

// addSeen adds a fact: whether the model was offered a server's tool, and under which name.
func (c *Check) addSeen(t *turn, s *server) {
	requests := t.requests()
	if len(requests) == 0 {
		c.add(FactSeen, NA, timeless, notCalled)
		return
	}
	name, offered := toolIn(requests[0], s.tool)
	if name == "" {
		c.add(FactSeen, No, timeless, "the first request of the turn offers %d tools", offered)
		return
	}
	c.add(FactSeen, Yes, timeless, "as %s", name)
}

// toolIn returns the name under which a request offers a tool, and how many tools it offers.
func toolIn(r fakemodel.Request, tool string) (name string, offered int) {
	if i := slices.IndexFunc(r.Tools, func(name string) bool { return strings.HasSuffix(name, tool) }); i >= 0 {
		name = r.Tools[i]
	}
	return name, len(r.Tools)
}

// asks returns the options that the agent offered when it asked for permission.
func (a *process) asks() (options []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, req := range a.permissionRequests {
		for _, o := range req.Options {
			options = append(options, o.Name)
		}
	}
	return options
}

// addArrived adds a fact from the server's own log: whether a tool was called.
func (c *Check) addArrived(log []fakemcp.Entry, tool string) {
	c.add(FactArrived, whether(has("tools/call", tool, true)(log)), timeless, "the server was asked for %s", methods(log))
}

// methods returns the methods that were called at a server.
func methods(log []fakemcp.Entry) string {
	var names []string
	for _, e := range log {
		if !slices.Contains(names, e.Method) {
			names = append(names, e.Method)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// addShown adds a fact: whether the result of the tool reached the model.
func (c *Check) addShown(t *turn, marker string) {
	requests := t.requests()
	if len(requests) == 0 {
		c.add(FactShown, NA, timeless, notCalled)
		return
	}
	shown := holdsResult(requests[len(requests)-1], marker)
	c.add(FactShown, whether(shown), timeless, "in the last of %d requests; the turn ended with %s",
		len(requests), t.result.StopReason)
}

func holdsResult(r fakemodel.Request, text string) bool {
	return slices.ContainsFunc(r.Messages, func(m fakemodel.Message) bool {
		return slices.ContainsFunc(m.Results, func(result fakemodel.Result) bool {
			return strings.Contains(result.Text, text)
		})
	})
}

// slowness is how long the slow server takes for its first answer.
const slowness = 3 * time.Second

// askSlowServer asks whether an agent waits for its tools: in session/new, or before its first
// request to the model.
func askSlowServer(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	t, ok := a.remote()
	if !ok {
		c.Verdict, c.Detail = NA, noRemote
		return nil
	}
	s, err := r.serve(t, slowness)
	if err != nil {
		return err
	}
	session, took, err := a.open(ctx, s)
	if err != nil {
		return err
	}
	c.add(FactWaits, whether(took >= slowness), took, "the server takes %v for its first answer", slowness)
	prompted := time.Now()
	turn, err := a.prompt(ctx, session, call(s.tool, "{}")+" [[SAY the call is over]]")
	if err != nil {
		return err
	}
	requests := turn.requests()
	switch {
	case len(requests) == 0:
		c.add(FactFirst, NA, timeless, notCalled)
	default:
		name, offered := toolIn(requests[0], s.tool)
		c.add(FactFirst, whether(name != ""), requests[0].Time.Sub(prompted), "one of %d tools", offered)
	}
	switch {
	case c.Fact(FactWaits) == Yes && c.Fact(FactFirst) != No:
		c.Verdict = "session/new waits"
	case c.Fact(FactFirst) == Yes:
		c.Verdict = "first request waits"
	default:
		c.Verdict, c.Detail = No, "the first request to the model has no tools of a server that is slow to begin"
	}
	return nil
}

// askDeadServer asks whether an agent says that a server cannot be reached.
func askDeadServer(ctx context.Context, r *rig, c *Check) error {
	a, err := r.start(ctx)
	if err != nil {
		return err
	}
	t, ok := a.remote()
	if !ok {
		c.Verdict, c.Detail = NA, noRemote
		return nil
	}
	s, err := deadServer(t)
	if err != nil {
		return err
	}
	session, took, err := a.open(ctx, s)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		c.Verdict = "session/new fails"
		c.add(FactSession, No, took, "%s", refusal(err))
		return nil
	}
	c.add(FactSession, Yes, took, "")
	turn, err := a.prompt(ctx, session, "[[SAY nothing to do]]")
	if err != nil {
		return err
	}
	c.add(FactReturned, turn.result.StopReason, turn.took, "")
	said := a.complaint()
	c.add(FactTold, whether(said != ""), timeless, "%s", said)
	c.Verdict = "goes on silently"
	if said != "" {
		c.Verdict = "goes on, says so"
	}
	return nil
}

// complaint returns the agent's report about a server that it cannot use: a failed tool call, or an
// update that names the server.
func (a *process) complaint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, call := range a.calls.All() {
		if call.Status == acp.ToolFailed {
			return "a failed tool call: " + call.Title
		}
	}
	for _, u := range a.updates {
		if text, ok := u.Text(); ok && u.Kind != acp.UpdateUserMessage && strings.Contains(text, serverName) {
			return text
		}
	}
	return ""
}
