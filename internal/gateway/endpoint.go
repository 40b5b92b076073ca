package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Endpoint serves one client with one server. The client takes it for the server. Each legacy
// session of the client has a connection of its own, as it would have without us. Modern clients
// have no sessions, and their requests share a connection.
type Endpoint struct {
	server Server
	policy Policy
	tasks  Tasks
	now    func() time.Time
	http   *mcp.HTTPHandler
	// observer is nil if nobody wants to know.
	observer Observer

	// ctx ends with the endpoint.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	readiness *readiness
	upstreams Upstreams
	tools     ToolList
	parked    parkedCalls

	mu    sync.Mutex
	stats Stats
}

// Stats count the traffic of an endpoint.
type Stats struct {
	// Calls counts calls of tools. Held counts those that were kept waiting because what they started
	// would not outlive us.
	Calls, Held int
	// Lost says why the server went in the middle of a call; empty if it did not.
	Lost string
}

// NewEndpoint makes an endpoint that belongs to no access; see [Endpoint.Close]. A nil policy
// passes on everything.
func NewEndpoint(s Server, policy func(e *Endpoint) Policy, now func() time.Time) *Endpoint {
	e := &Endpoint{server: s, tasks: noTasks{}, now: now, readiness: newReadiness()}
	e.tools = ToolList{server: &e.server, readiness: e.readiness}
	e.upstreams = Upstreams{server: &e.server, open: map[*Upstream]bool{}}
	e.upstreams.newShared = func(meta jsonobj.Object) *Upstream {
		l := newUpstream(e, nil, meta.Object(mcp.MetaClientCapabilities), meta.Get(mcp.MetaClientInfo))
		l.key = string(meta.Get(mcp.MetaClientCapabilities))
		return l
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.policy = transparent{}
	if policy != nil {
		e.policy = policy(e)
	}
	return e
}

// Stats returns the stats so far.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// count changes the stats.
func (e *Endpoint) count(change func(s *Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.stats)
}

// CountHeld counts a call that is held open.
func (e *Endpoint) CountHeld() { e.count(func(s *Stats) { s.Held++ }) }

// Listed reports whether the client has seen the tools of the server, and whether it has connected
// at all.
func (e *Endpoint) Listed() (ready, asked bool) {
	all, _ := e.upstreams.count()
	return e.readiness.isReady(), all > 0
}

// MarkReady says that the client has seen the tools of the server.
func (e *Endpoint) MarkReady() { e.readiness.mark() }

// Close ends the sessions and the connections.
func (e *Endpoint) Close() {
	e.cancel()
	if e.http != nil { // else somebody else serves it
		e.http.Close()
	}
	e.upstreams.close()
	e.running.Wait()
}

// Serve implements mcp.Handler.
func (e *Endpoint) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == mcp.MethodInitialize {
		result, err := e.initialize(ctx, r)
		if l, _ := r.Session.Value().(*Upstream); err == nil {
			err = e.tasks.Opened(ctx, e.server.Name, r.Session, result, l.capabilities, l.info)
		}
		return result, err
	}
	if result, ok, err := e.tasks.Serve(ctx, r); ok {
		return result, err
	}
	if r.Method == mcp.MethodDiscover {
		return e.discover(ctx, r)
	}
	l, err := e.Upstream(ctx, r)
	if err != nil {
		return nil, e.Unreachable(err)
	}
	return e.ServeOn(ctx, l, r)
}

// ServeOn serves a request over an upstream that is connected.
func (e *Endpoint) ServeOn(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodListen:
		result, err := l.Listen(ctx, r, func() {})
		if err == nil {
			e.tasks.Linger(ctx, r)
		}
		switch {
		case ctx.Err() != nil:
			return Listened(ctx, r)
		case err != nil:
			return nil, l.ClientError(err)
		}
		return result, nil
	case mcp.MethodToolsList:
		return e.tools.answer(ctx, l, r)
	case mcp.MethodToolsCall:
		e.count(func(s *Stats) { s.Calls++ })
		if err := e.tools.check(ctx, l, r); err != nil {
			return nil, err
		}
		return e.policy.Call(ctx, l, r)
	case mcp.MethodSetLevel:
		return l.SetLevel(ctx, r)
	case mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		return l.subscribe(ctx, r)
	}
	return l.forward(ctx, r)
}

// Notified implements mcp.Handler. It passes notifications of the client on to its server. Those of
// modern clients belong to no session.
func (e *Endpoint) Notified(s *mcp.Session, method string, params json.RawMessage) {
	l, _ := s.Value().(*Upstream)
	if l == nil || method == mcp.NoteInitialized {
		return
	}
	c := l.Client()
	if c == nil || c.Era() != mcp.Legacy {
		return // a modern server wants to hear nothing of this kind
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	_ = c.Notify(ctx, method, params) // a notification has no answer that could say that the server has gone
}

// Closed implements mcp.Handler.
func (e *Endpoint) Closed(s *mcp.Session) {
	e.tasks.Closed(s)
	l, _ := s.Value().(*Upstream)
	if l == nil {
		return
	}
	e.upstreams.Release(l)
	l.Close()
}

// Unreachable is the error for a client whose server cannot be reached.
func (e *Endpoint) Unreachable(err error) error {
	if refused := unauthorized(e.server.Name, err); refused != nil {
		return refused
	}
	var known *mcp.Error
	if errors.As(err, &known) {
		return known
	}
	return mcp.Errorf(mcp.CodeInternal, "MCP server %q cannot be reached: %v", e.server.Name, err)
}

// unauthorized is the error for a client whose server wants credentials that the gateway does not
// have; nil for every other error. The server's own challenge goes with it, but not as the status
// of HTTP: the client would take it for ours, and send its credentials for the server to us.
func unauthorized(server string, err error) *mcp.Error {
	var status *mcp.StatusError
	if !errors.As(err, &status) || !status.Unauthorized() {
		return nil
	}
	data := jsonobj.Object{{Key: "status", Value: strconv.AppendInt(nil, int64(status.Status), 10)}}
	if status.Challenge != "" {
		data = data.Set("wwwAuthenticate", jsonobj.Quote(status.Challenge))
	}
	return mcp.Errorf(mcp.CodeInternal,
		"MCP server %q wants other credentials: %v; set the header Authorization of this server where it is configured",
		server, status).WithData(data.JSON())
}

// open makes the upstream of a legacy session, which is not connected.
func (e *Endpoint) open(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error {
	l := e.NewUpstream(s, version, capabilities, info)
	if err := e.upstreams.Adopt(l); err != nil {
		return err
	}
	s.SetValue(l)
	return nil
}

// Upstream finds the connection that a request belongs to. It makes one where there is none: for
// the first modern request, for a legacy session that was not used yet, and after the server has
// gone.
func (e *Endpoint) Upstream(ctx context.Context, r *mcp.Request) (*Upstream, error) {
	if r.Era == mcp.Modern {
		return e.upstreams.connectShared(ctx, r)
	}
	l, _ := r.Session.Value().(*Upstream)
	if l == nil {
		return nil, ErrClosed
	}
	return l, l.Connect(ctx)
}

// Server returns the server that the endpoint serves its client with.
func (e *Endpoint) Server() *Server { return &e.server }

// Policy decides on the calls of the client.
func (e *Endpoint) Policy() Policy { return e.policy }

// Context ends with the endpoint.
func (e *Endpoint) Context() context.Context { return e.ctx }

// Now is the time by the clock of the access.
func (e *Endpoint) Now() time.Time { return e.now() }

// Go runs f on a goroutine that [Endpoint.Close] waits for.
func (e *Endpoint) Go(f func()) { e.running.Go(f) }

// NewUpstream makes the upstream of a legacy session, which is not connected. It has to be adopted.
func (e *Endpoint) NewUpstream(s *mcp.Session, version string,
	capabilities jsonobj.Object, info json.RawMessage) *Upstream {
	l := newUpstream(e, s, capabilities, info)
	l.version = version
	return l
}

// OwnUpstream connects with the server for the gateway itself. The caller closes it.
func (e *Endpoint) OwnUpstream(ctx context.Context) (*Upstream, error) {
	l := newUpstream(e, nil, nil, nil)
	if err := l.Connect(ctx); err != nil {
		l.Close()
		return nil, &UnreachableError{e.server.Name, err} // the error is the server's, not what it says of a job
	}
	return l, nil
}

// Upstreams are the upstreams of the endpoint.
func (e *Endpoint) Upstreams() *Upstreams { return &e.upstreams }

// Tools are the tools of the server.
func (e *Endpoint) Tools() *ToolList { return &e.tools }

// retire ends a connection that another has replaced. If only its session was lost, the other
// requests over it still have to learn that the server has not looked at them.
func (e *Endpoint) retire(old *mcp.Client) {
	e.running.Go(func() {
		over := time.NewTimer(e.server.CallLimit()) // by then every call that stays silent has ended
		defer over.Stop()
		select {
		case <-over.C:
		case <-old.Done():
		case <-e.ctx.Done():
		}
		_ = old.Detach() // nobody uses it any more
	})
}
