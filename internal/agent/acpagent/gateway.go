package acpagent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
)

// gatewayPort is where the gateway is on the loopback of a space without network.
const gatewayPort = 18435

// BridgeCommand is the hidden command that connects stdin and stdout with an endpoint of the gateway, for agents that know no HTTP. It finds
// the endpoint and the token in the variables.
const (
	BridgeCommand  = "mcp-bridge"
	BridgeURLVar   = "EVALRUN_MCP_URL"
	BridgeTokenVar = "EVALRUN_MCP_TOKEN"
)

// openGateway opens the agent's access to its servers, and the ways to those of them that live in its space.
func (s *segment) openGateway(place *agent.Place) error {
	g := s.seg.Gateway
	if g == nil || s.opts.Gateway == nil || len(s.seg.Servers) == 0 {
		return nil
	}
	space := &place.Space
	calls := &gateway.Calls{
		Ledger: g.Ledger, Check: g.Check, SoftWait: g.SoftWait, Person: s.entry.Elicitation == agent.PolicySuspend,
		Holding: s.clock.hold, Suspended: s.client.waitForWork, Arrived: s.client.workArrived,
		Unknown: func(w gateway.Work) {
			s.client.limit(fault.Newf(fault.StartUnknown, "the call of %s of MCP server %q may have started something before a crash, and the server can neither tell nor start it only once", w.Tool, w.Server))
		},
		Permit: s.client.permitCall, Called: s.client.saw,
	}
	o := gateway.AccessOptions{Now: s.opts.Now, Policy: calls.Policy}
	for i, server := range s.seg.Servers {
		o.Servers = append(o.Servers, gateway.Server{Name: server.Name, Filter: g.Filters[server.Name]})
		behind := &o.Servers[i]
		switch server.Transport {
		case acp.TransportStdio:
			behind.Mortal = true
			behind.Target.Start = s.spawn(place, i, server)
		default:
			behind.Target.URL, behind.Target.SSE, behind.Target.Header = server.URL, server.Transport == acp.TransportSSE, http.Header{}
			for _, h := range server.Headers {
				behind.Target.Header.Add(h.Name, h.Value)
			}
			if slices.Contains(s.seg.Hosted, server.Name) {
				behind.Mortal = true
				if err := s.expose(place, i, server.URL, &behind.Target); err != nil {
					return err
				}
			}
		}
	}
	var err error
	if s.access, err = s.opts.Gateway.Open(o); err != nil {
		return err
	}
	if !space.Network && space.Isolation == sandbox.IsolationBwrap {
		socket := filepath.Join(place.Sockets, "mcp.sock")
		if err := s.access.ServeUnix(socket); err != nil {
			return err
		}
		space.Forwards = append(slices.Clone(space.Forwards), sandbox.Forward{Port: gatewayPort, Socket: socket})
	}
	return nil
}

// spawn makes the way to a stdio server, which is started in the agent's space for each connection.
func (s *segment) spawn(place *agent.Place, i int, server acp.MCPServer) func(context.Context) (io.ReadWriteCloser, error) {
	socket := filepath.Join(place.Sockets, fmt.Sprintf("stdio-%d.sock", i))
	c := sandbox.SetupCommand{Args: append([]string{server.Command}, server.Args...), Dir: cmp.Or(server.Cwd, place.Cwd)}
	for _, kv := range server.Env {
		c.Env = append(c.Env, kv.Name+"="+kv.Value)
	}
	place.Space.Spawns = append(slices.Clone(place.Space.Spawns), sandbox.Spawn{Socket: socket, Command: c})
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return dialUnix(ctx, socket) }
}

// expose makes the way to an HTTP server that is started in a space without this machine's network.
func (s *segment) expose(place *agent.Place, i int, raw string, target *mcp.Target) error {
	if place.Space.Network || place.Space.Isolation != sandbox.IsolationBwrap {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fault.New(fault.MCP, "its url is none")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[bool]int{true: 443, false: 80}[u.Scheme == "https"]
	}
	socket := filepath.Join(place.Sockets, fmt.Sprintf("http-%d.sock", i))
	place.Space.Exposes = append(slices.Clone(place.Space.Exposes), sandbox.Expose{Socket: socket, Port: port})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, socket) }}
	s.streams = append(s.streams, closeFunc(transport.CloseIdleConnections))
	target.HTTPClient = &http.Client{Transport: transport}
	return nil
}

type closeFunc func()

// Close implements io.Closer.
func (f closeFunc) Close() error { f(); return nil }

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

// declared are the servers as the agent is told of them: as they are, or those of the gateway under their names, over HTTP or, if the agent does not know
// that, over a bridge that it starts.
func (s *segment) declared(caps acp.Capabilities) []acp.MCPServer {
	if s.access == nil {
		return s.seg.Servers
	}
	var out []acp.MCPServer
	for _, server := range s.seg.Servers {
		base := s.access.URL(server.Name)
		if space := &s.seg.Place.Space; !space.Network && space.Isolation == sandbox.IsolationBwrap {
			base = fmt.Sprintf("http://127.0.0.1:%d%s", gatewayPort, s.access.Path(server.Name))
		}
		p := acp.MCPServer{Name: server.Name, Meta: server.Meta}
		if caps.Accepts(acp.TransportHTTP) {
			p.Transport, p.URL, p.Headers = acp.TransportHTTP, base, []acp.KeyValue{{Name: "Authorization", Value: "Bearer " + s.access.Token()}}
		} else {
			p.Transport, p.Command, p.Args = acp.TransportStdio, s.executable(), []string{BridgeCommand}
			p.Env = []acp.KeyValue{{Name: BridgeURLVar, Value: base}, {Name: BridgeTokenVar, Value: s.access.Token()}}
		}
		out = append(out, p)
	}
	return out
}

// executable is evalrun itself as the agent finds it.
func (s *segment) executable() string {
	if s.seg.Place.Space.Isolation == sandbox.IsolationBwrap {
		return sandbox.InsideExecutable
	}
	return s.seg.Place.Executable
}

// awaitTools waits until the agent has seen the tools of its servers: some agents go on without them.
func (s *segment) awaitTools(ctx context.Context) *fault.Fault {
	if s.access == nil {
		return nil
	}
	errLate := errors.New("late")
	waiting, cancel := context.WithTimeoutCause(ctx, s.bounds.tools, errLate)
	defer cancel()
	err := s.access.Ready(waiting)
	var unreachable *gateway.UnreachableError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return agent.CauseFault(ctx)
	case errors.Is(err, errLate):
		return s.noTools()
	case errors.As(err, &unreachable):
		s.note(unreachable.Server, agent.VerdictUnreachable, unreachable.Err.Error())
	}
	return fault.New(fault.MCP, err.Error())
}

// noTools is the fault of an agent that has no tools of some of its servers in time. To go on would score an agent that could do nothing.
func (s *segment) noTools() (f *fault.Fault) {
	for _, e := range s.access.Endpoints() {
		var why string
		switch ready, asked := e.Listed(); {
		case ready:
			continue
		case asked:
			why = fmt.Sprintf("its tools did not come within %v", s.bounds.tools)
		default:
			why = fmt.Sprintf("the agent has not asked for its tools within %v", s.bounds.tools)
		}
		s.note(e.Name(), agent.VerdictNoTools, why)
		if f == nil {
			f = fault.Newf(fault.MCP, "MCP server %q: %s", e.Name(), why)
		}
	}
	return f
}

// note sets the verdict of a server.
func (s *segment) note(server string, verdict agent.Verdict, reason string) {
	for i := range s.info.MCPServers {
		if v := &s.info.MCPServers[i]; v.Name == server {
			v.Verdict, v.Reason = verdict, reason
		}
	}
}

// noteServers reports what went through the gateway, and whether a server went away in the middle of a call.
func (s *segment) noteServers() (lost *fault.Fault) {
	if s.access == nil {
		return nil
	}
	for i := range s.info.MCPServers {
		v := &s.info.MCPServers[i]
		e := s.access.Endpoint(v.Name)
		stats := e.Stats()
		v.Held = stats.Held
		if stats.Lost != "" && lost == nil {
			lost = fault.Newf(fault.MCP, "MCP server %q went away in the middle of a call: %s", v.Name, stats.Lost)
		}
	}
	return lost
}

// waitForWork notes that the turn has started what the rollout has to wait for.
func (c *client) waitForWork(w gateway.Work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = c.s.opts.Now()
	c.wait(asked{Interrupt: "call-" + w.CallID, What: askedWork, Title: w.Tool, Kind: w.Server, Work: &w, SpanID: workSpan(w.CallID)})
}

// workArrived notes that a call has brought the result of work that was waited for.
func (c *client) workArrived(w gateway.Work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived[w.CallID] = true
	c.asked = c.stillWaited(c.asked)
	if len(c.asked) == 0 && c.over != nil {
		c.over.Stop()
		c.over = nil
	}
}

// stillWaited are those of all whose work has not brought its result yet. The caller holds mu.
func (c *client) stillWaited(all []asked) []asked {
	return slices.DeleteFunc(slices.Clone(all), func(a asked) bool { return a.Work != nil && c.arrived[a.Work.CallID] })
}

// settle is called at the end of a turn: what its calls have started is waited for, also if the agent has not waited for the answers.
func (s *segment) settle(ctx context.Context) {
	if s.access == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.bounds.settle)
	defer cancel()
	gateway.Settle(ctx, s.access)
}

// callOf is the id that the agent itself gives a call which has started work: of several that fit, the last. The caller holds mu.
func (c *client) callOf(w *gateway.Work) (id string) {
	for _, call := range c.tools.All() {
		t := c.s.toolOf(call, c.titles[call.ID])
		if t.Server == w.Server && t.Name == w.Tool && (isEmptyInput(t.Input) || jsonobj.Canonical(t.Input) == jsonobj.Canonical(w.Arguments)) {
			id = call.ID
		}
	}
	return id
}

// WorkSpec is what a rollout waits for that has started work: the job, or the MCP task. A task's id may be all that it takes to read its result: it
// is shown as a hash.
func WorkSpec(w gateway.Work) (wait.Spec, error) {
	payload := map[string]any{"server": w.Server, "tool": w.Tool, "arguments": w.Arguments}
	spec := wait.Spec{Type: wait.Job, Name: "JOB_RAW", Process: w.Tool}
	switch {
	case w.Input != nil:
		return questionSpec(w, payload)
	case w.Task != nil:
		sum := sha256.Sum256([]byte(w.Task.ID))
		spec.Type, spec.Name, spec.ItemKey = wait.MCPTask, string(wait.MCPTask), "task-"+hex.EncodeToString(sum[:8])
		if at := w.Task.ExpiresAt(); !at.IsZero() {
			spec.ExpiresAt = &at
		}
	default:
		spec.ItemKey, spec.FolderKey = w.Job.Key, w.Job.FolderKey
	}
	var err error
	if spec.Payload, err = json.Marshal(payload); err != nil {
		return spec, err
	}
	spec.Watch, err = json.Marshal(w)
	return spec, err
}

// questionSpec is a task for a person: to answer what a server wants to know.
func questionSpec(w gateway.Work, payload map[string]any) (wait.Spec, error) {
	questions := w.Input.Questions()
	var titles []string
	for _, q := range questions {
		asked, _ := jsonobj.ParseObject(q.Value)
		titles = append(titles, asked.Text("message"))
	}
	if titles == nil {
		titles = []string{cmp.Or(w.Input.Message, w.Tool+" wants to know something before it goes on")}
	}
	payload["what"], payload["title"] = askedQuestion, strings.Join(titles, "\n")
	if questions != nil {
		payload["questions"] = questions.JSON()
	}
	if w.Task != nil && !w.Task.ExpiresAt().IsZero() {
		payload["expiresAt"] = w.Task.ExpiresAt() // the server forgets what it has asked
	}
	spec := wait.Spec{Type: wait.Task, Name: string(wait.Task)}
	var err error
	spec.Payload, err = json.Marshal(payload)
	return spec, err
}

// result is what came of work that was waited for: a result of its tool. again says that it is not there yet: a is what is to be waited for then.
func (s *segment) result(ctx context.Context, a *asked, d agent.Delivery) (result json.RawMessage, again bool, f *fault.Fault) {
	w := a.Work
	if w.Input != nil {
		return s.answer(ctx, a, d)
	}
	if d.Error != nil {
		return gateway.TextResult(d.Error.Message, true), false, nil
	}
	switch outcome := gateway.ReadOutcome(d.Payload); {
	case outcome != nil && outcome.Error != nil:
		return gateway.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	case outcome != nil:
		return outcome.Result, false, nil
	case w.Task != nil && gateway.ReadInput(d.Payload) != nil:
		work, f := s.workOf(ctx, w)
		if f == nil {
			work.Input = gateway.ReadInput(d.Payload)
			s.waitAgain(a, work)
		}
		return nil, true, f
	case w.Task != nil:
		return gateway.TextResult(string(d.Payload), false), false, nil // of somebody who has delivered by hand
	}
	ending := gateway.EndingOf(w.Tool, *w.Job, d.Payload)
	if !ending.Fetch {
		return gateway.TextResult(ending.Text, true), false, nil
	}
	if s.access == nil || s.access.Endpoint(w.Server) == nil {
		return nil, false, fault.Newf(fault.MCP, "the result of %s cannot be fetched: MCP server %q is not behind the gateway any more", w.Tool, w.Server)
	}
	fetching, cancel := context.WithTimeout(ctx, s.bounds.fetch)
	defer cancel()
	result, err := gateway.FetchAt(fetching, s.access.Endpoint(w.Server), w.Tool, *w.Job)
	var said *mcp.Error
	switch {
	case errors.Is(err, gateway.ErrNotDone) && s.seg.Gateway.Refetch != nil && s.seg.Gateway.Refetch(*w):
		return nil, true, nil
	case errors.Is(err, gateway.ErrNotDone):
		return gateway.TextResult(fmt.Sprintf("The job is said to be done, but there is no result: %v.", err), true), false, nil
	case errors.As(err, &said):
		return gateway.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	}
	return result, false, nil
}

// answer gives a server what a person has answered, and is what came of it.
func (s *segment) answer(ctx context.Context, a *asked, d agent.Delivery) (result json.RawMessage, again bool, f *fault.Fault) {
	if s.access == nil || s.access.Endpoint(a.Work.Server) == nil {
		return nil, false, fault.Newf(fault.MCP, "%s cannot be answered: MCP server %q is not behind the gateway any more", a.Work.Tool, a.Work.Server)
	}
	work, f := s.workOf(ctx, a.Work)
	if f != nil {
		return nil, false, f
	}
	outcome, err := gateway.Answer(ctx, s.access.Endpoint(a.Work.Server), work, *a.Work.Input, elicited(d, *a.Work.Input))
	var said *mcp.Error
	switch {
	case errors.Is(err, gateway.ErrUnknown):
		return nil, false, fault.Newf(fault.StartUnknown, "%s of MCP server %q: %v", a.Work.Tool, a.Work.Server, err)
	case errors.Is(err, gateway.ErrTaskLost):
		return gateway.TextResult("The answer came too late: "+err.Error(), true), false, nil
	case errors.As(err, &said):
		return gateway.TextResult(said.Error(), true), false, nil
	case ctx.Err() != nil:
		return nil, false, agent.CauseFault(ctx)
	case err != nil:
		return nil, false, fault.New(fault.MCP, err.Error())
	case outcome == nil:
		s.waitAgain(a, work)
		return nil, true, nil
	case outcome.Error != nil:
		return gateway.TextResult(mcp.ParseError(outcome.Error).Error(), true), false, nil
	}
	return outcome.Result, false, nil
}

// workOf is work as the ledger has it.
func (s *segment) workOf(ctx context.Context, recorded *gateway.Work) (*gateway.Work, *fault.Fault) {
	work := &gateway.Work{}
	raw, err := s.seg.Gateway.Ledger.Work(ctx, recorded.CallID)
	if err == nil {
		err = json.Unmarshal(raw, work)
	}
	if err != nil {
		return nil, fault.Newf(fault.MCP, "what %s of MCP server %q waits for cannot be read: %v", recorded.Tool, recorded.Server, err)
	}
	return work, nil
}

// waitAgain notes that a is still waited for, as work is now.
func (s *segment) waitAgain(a *asked, work *gateway.Work) {
	a.whole, a.Work = work, s.recorded(asked{Work: work}).Work
}

// maxTold is how much of a result is told: some agents show their model no more of what a tool gives either.
const maxTold = 100 << 10

// tellResult is the part of the next prompt that gives a result, and the text of the result.
func tellResult(w *gateway.Work, result json.RawMessage) (told, text string, failed bool) {
	text, failed = resultText(result)
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "\n[… left out …]"
	}
	what := "The result of"
	if failed {
		what = "It has failed:"
	}
	return fmt.Sprintf("%s %s %s, which you started before and which is done now:\n\n%s", what, w.Tool, jsonobj.Canonical(w.Arguments), text), text, failed
}

// resultText is the result of a tool as a person would read it, and whether it is an error.
func resultText(result json.RawMessage) (text string, failed bool) {
	var r struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if json.Unmarshal(result, &r) != nil {
		return string(result), false
	}
	var parts []string
	for _, raw := range r.Content {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &block) == nil && block.Type == "text" {
			parts = append(parts, block.Text)
		} else {
			parts = append(parts, string(raw))
		}
	}
	return cmp.Or(strings.Join(parts, "\n"), string(r.Structured)), r.IsError
}
