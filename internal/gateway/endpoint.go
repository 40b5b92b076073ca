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

// Endpoint serves one client with one server: it is what the client takes for the server. Each legacy session of the client has a connection of
// its own, as it would have without us; the requests of modern clients, which have no sessions, share theirs.
type Endpoint struct {
	server Server
	policy Policy
	tasks  Tasks
	now    func() time.Time
	http   *mcp.HTTPHandler

	// ctx ends with the endpoint.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	ready     chan struct{} // closed when the client has seen the tools
	failed    chan struct{} // closed when the server could not be reached
	readyOnce sync.Once

	mu        sync.Mutex
	err       error
	upstreams map[*Upstream]bool
	shared    []*Upstream // of modern clients
	pending   map[string]*pendingCall
	tools     map[string]Tool
	stats     Stats
}

// Stats say what went through an endpoint.
type Stats struct {
	// Calls counts calls of tools, Held those that were kept waiting because what they started would not outlive us.
	Calls, Held int
	// Lost says why the server went in the middle of a call; empty if it did not.
	Lost string
}

// NewEndpoint makes an endpoint of its own, which no access serves; see [Endpoint.Close]. A policy
// that is nil passes on everything.
func NewEndpoint(s Server, policy func(e *Endpoint) Policy, now func() time.Time) *Endpoint {
	e := &Endpoint{
		server: s, tasks: noTasks{}, now: now, ready: make(chan struct{}), failed: make(chan struct{}),
		upstreams: map[*Upstream]bool{}, pending: map[string]*pendingCall{}, tools: map[string]Tool{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.policy = transparent{}
	if policy != nil {
		e.policy = policy(e)
	}
	return e
}

// Name is that of the server.
func (e *Endpoint) Name() string { return e.server.Name }

// Stats returns what went through so far.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Listed reports whether the client has seen the tools of the server, and whether it has connected at all.
func (e *Endpoint) Listed() (ready, asked bool) {
	select {
	case <-e.ready:
		ready = true
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return ready, len(e.upstreams) > 0
}

func (e *Endpoint) MarkReady() { e.readyOnce.Do(func() { close(e.ready) }) }

// fail notes that the server cannot be reached. Only the first failure counts, and none after the client has seen the tools.
func (e *Endpoint) fail(err error) {
	e.readyOnce.Do(func() {
		e.mu.Lock()
		e.err = err
		e.mu.Unlock()
		close(e.failed)
	})
}

func (e *Endpoint) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// Close ends the sessions and the connections.
func (e *Endpoint) Close() {
	e.cancel()
	if e.http != nil { // else somebody else serves it
		e.http.Close()
	}
	e.mu.Lock()
	links := e.upstreams
	e.upstreams, e.shared = nil, nil
	e.mu.Unlock()
	for l := range links {
		l.Close()
	}
	e.running.Wait()
}

// Serve implements mcp.Handler.
func (e *Endpoint) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == mcp.MethodInitialize {
		hello, err := e.initialize(ctx, r)
		if l, _ := r.Session.Value().(*Upstream); err == nil {
			err = e.tasks.Opened(ctx, e.server.Name, r.Session, hello, l.capabilities, l.info)
		}
		return hello, err
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

// ServeOn serves a request over a link that is connected.
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
		return l.listTools(ctx, r)
	case mcp.MethodToolsCall:
		return e.callTool(ctx, l, r)
	case mcp.MethodSetLevel:
		return l.SetLevel(ctx, r)
	case mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		return l.subscribe(ctx, r)
	}
	return l.forward(ctx, r)
}

// callTool counts a call and has the policy make it.
func (e *Endpoint) callTool(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error) {
	e.mu.Lock()
	e.stats.Calls++
	e.mu.Unlock()
	if err := l.checkTool(ctx, r); err != nil {
		return nil, err
	}
	return e.policy.Call(ctx, l, r)
}

// Notified implements mcp.Handler: what a client says without being asked goes on to its server. Those of modern clients belong to no session.
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
	_ = c.Notify(ctx, method, params) // a notification has no answer in which to say that the server has gone
}

// Closed implements mcp.Handler.
func (e *Endpoint) Closed(s *mcp.Session) {
	e.tasks.Closed(s)
	l, _ := s.Value().(*Upstream)
	if l == nil {
		return
	}
	e.Release(l)
	l.Close()
}

// Unreachable is what a client is told whose server cannot be reached.
func (e *Endpoint) Unreachable(err error) error {
	if refused := e.unauthorized(err); refused != nil {
		return refused
	}
	var known *mcp.Error
	if errors.As(err, &known) {
		return known
	}
	return mcp.Errorf(mcp.CodeInternal, "MCP server %q cannot be reached: %v", e.server.Name, err)
}

// unauthorized is what a client is told whose server wants credentials that the gateway does not have; nil for every other error. The server's own
// challenge goes with it, but not as the status of HTTP: the client would take it for ours, and send its credentials for the server to us.
func (e *Endpoint) unauthorized(err error) *mcp.Error {
	var status *mcp.StatusError
	if !errors.As(err, &status) || !status.Unauthorized() {
		return nil
	}
	data := jsonobj.Object{{Key: "status", Value: strconv.AppendInt(nil, int64(status.Status), 10)}}
	if status.Challenge != "" {
		data = data.Set("wwwAuthenticate", jsonobj.Quote(status.Challenge))
	}
	return mcp.Errorf(mcp.CodeInternal, "MCP server %q wants other credentials: %v; set the header Authorization of this server where it is configured", e.server.Name, status).WithData(data.JSON())
}

// open makes the link of a legacy session, which is not connected.
func (e *Endpoint) open(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error {
	l := e.NewUpstream(s, version, capabilities, info)
	if err := e.Adopt(l); err != nil {
		return err
	}
	s.SetValue(l)
	return nil
}

// Upstream finds the connection that a request belongs to, and makes one where there is none: for the first modern request, for a legacy session that
// was not used yet, and after the server has gone.
func (e *Endpoint) Upstream(ctx context.Context, r *mcp.Request) (*Upstream, error) {
	if r.Era == mcp.Modern {
		return e.sharedUpstream(ctx, r)
	}
	l, _ := r.Session.Value().(*Upstream)
	if l == nil {
		return nil, ErrClosed
	}
	return l, l.Connect(ctx)
}

// maxShared is how many sets of capabilities are told apart at a legacy server.
const maxShared = 8

// sharedUpstream is the link for a modern request. All of them share one, as their capabilities come with each; but a legacy server is told them only
// once, so that there each set of capabilities has a link of its own.
func (e *Endpoint) sharedUpstream(ctx context.Context, r *mcp.Request) (*Upstream, error) {
	meta := r.Meta()
	first, err := e.Shared(meta, true)
	if err == nil {
		err = first.Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	if first.key == string(meta.Get(mcp.MetaClientCapabilities)) || first.Client().Era() == mcp.Modern {
		return first, nil
	}
	l, err := e.Shared(meta, false)
	if err != nil {
		return nil, err
	}
	return l, l.Connect(ctx)
}

// Shared finds or makes a shared link: the first one, or that for the capabilities in a request's _meta.
func (e *Endpoint) Shared(meta jsonobj.Object, first bool) (*Upstream, error) {
	capabilities := meta.Get(mcp.MetaClientCapabilities)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.upstreams == nil {
		return nil, ErrClosed
	}
	for _, l := range e.shared {
		if first || l.key == string(capabilities) {
			return l, nil
		}
	}
	if len(e.shared) == maxShared {
		return e.shared[0], nil // what a client cannot do is looked at with every request
	}
	l := &Upstream{e: e, key: string(capabilities), capabilities: meta.Object(mcp.MetaClientCapabilities), info: meta.Get(mcp.MetaClientInfo)}
	e.shared = append(e.shared, l)
	e.upstreams[l] = true
	return l, nil
}

// Adopt enters the link of a legacy session.
func (e *Endpoint) Adopt(l *Upstream) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	limit := e.server.MaxSessions
	switch {
	case e.upstreams == nil:
		return ErrClosed
	case limit > 0 && len(e.upstreams)-len(e.shared) >= limit:
		return mcp.Errorf(mcp.CodeInternal, "MCP server %q has %d sessions, which is the limit; end one, or try again later", e.server.Name, limit)
	}
	e.upstreams[l] = true
	return nil
}

// Connected is the link of a modern request if it is connected, else nil.
func (e *Endpoint) Connected(r *mcp.Request) *Upstream {
	up := func(first bool) *Upstream {
		l, err := e.Shared(r.Meta(), first)
		if err != nil || !l.IsConnected() {
			return nil
		}
		return l
	}
	l := up(true)
	if l == nil || l.Client().Era() == mcp.Modern || l.key == string(r.Meta().Get(mcp.MetaClientCapabilities)) {
		return l
	}
	return up(false)
}

// Server is what the endpoint serves its client with.
func (e *Endpoint) Server() *Server { return &e.server }

// Policy decides on the calls of the client.
func (e *Endpoint) Policy() Policy { return e.policy }

// Context ends with the endpoint.
func (e *Endpoint) Context() context.Context { return e.ctx }

// Now is the time by the clock of the access.
func (e *Endpoint) Now() time.Time { return e.now() }

// Go runs f on a goroutine that [Endpoint.Close] waits for.
func (e *Endpoint) Go(f func()) { e.running.Go(f) }

// CountHeld counts a call that is held open.
func (e *Endpoint) CountHeld() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Held++
}

// NewUpstream makes the upstream of a legacy session, which is not connected. It has to be adopted.
func (e *Endpoint) NewUpstream(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) *Upstream {
	return &Upstream{e: e, session: s, version: version, capabilities: capabilities, info: info}
}

// OwnUpstream connects with the server for the gateway itself. Who calls it closes it.
func (e *Endpoint) OwnUpstream(ctx context.Context) (*Upstream, error) {
	l := &Upstream{e: e}
	if err := l.Connect(ctx); err != nil {
		l.Close()
		return nil, &UnreachableError{e.server.Name, err} // and not what the server says of a job
	}
	return l, nil
}

// Release takes an upstream out of the endpoint.
func (e *Endpoint) Release(l *Upstream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.upstreams, l)
}
