package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Server is one MCP server behind the gateway.
type Server struct {
	Name string
	// Target is where it is, Protocol the era that it speaks; empty finds out.
	Target   mcp.Target
	Protocol mcp.Era
	// ChildProcess says that what the server works on ends with us: its process is a child of ours, or of what we have started.
	ChildProcess bool
	Filter
	// Timeout is how long a call may take without any progress; 0 means 10 minutes.
	Timeout time.Duration
	// MaxSessions is how many legacy sessions may be open at once; 0 is no limit. Each session of a stdio server is a process.
	MaxSessions int
}

// Filter says which tools of a server a client may see: those named, all if there are none; with one of the tags to include, if there are any; and
// with none of those to exclude.
type Filter struct {
	Tools, IncludeTags, ExcludeTags []string
}

const defaultTimeout = 10 * time.Minute

func (s *Server) CallLimit() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return defaultTimeout
}

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

// Policy is what becomes of calls of tools, and how the work that they may start is shown.
type Policy interface {
	// InitializeResult changes what the client is told of the server; meta are the members of its _meta.
	InitializeResult(era mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object)
	// ShowTool changes how a tool is shown.
	ShowTool(l *Upstream, t jsonobj.Object) jsonobj.Object
	// Capabilities changes what a server is told of the client, an object.
	Capabilities(era mcp.Era, c json.RawMessage) json.RawMessage
	// AsksPerson says that questions of a modern server are not answered here, if a person can answer them: the policy sees them as results.
	AsksPerson() bool
	// Call handles tools/call.
	Call(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error)
	// WantsTasks says that the tasks of a modern server are wanted, so that it is asked for that era first.
	WantsTasks() bool
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

// Upstream is the connection of one legacy session, or of modern requests, to the server.
type Upstream struct {
	e *Endpoint
	// session is nil for the link of modern clients; key is how they spell their capabilities.
	session *mcp.Session
	key     string
	// version, capabilities and info are those of the client.
	version      string
	capabilities jsonobj.Object
	info         json.RawMessage

	connecting turn
	mu         sync.Mutex
	conn       *mcp.Client
	offers     offers
	level      string // of the logs that the server was asked for
	flights    []*InFlightCall
	follows    follows
	listeners  []*listener
	// kept says that the session with the server must not be ended: another process will go on with it.
	kept bool
	// users counts what goes on over the connection although its client may be gone; closing says that it is to be closed when they are done.
	users   int
	closing bool
}

// turn is a mutex for which one can wait until a context ends: connecting to a server that does not answer takes long. The zero value is free.
type turn struct {
	once sync.Once
	held chan struct{} // has an element while somebody holds the turn
}

func (t *turn) slot() chan struct{} {
	t.once.Do(func() { t.held = make(chan struct{}, 1) })
	return t.held
}

// Lock implements sync.Locker.
func (t *turn) Lock() { t.slot() <- struct{}{} }

// Unlock implements sync.Locker.
func (t *turn) Unlock() { <-t.slot() }

// lockIn locks, unless the context ends first.
func (t *turn) lockIn(ctx context.Context) error {
	select {
	case t.slot() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Client is the connection, which may have ended. There is one, since connect has succeeded before.
func (l *Upstream) Client() *mcp.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// Connect makes the connection, unless there is a good one.
func (l *Upstream) Connect(ctx context.Context) error {
	if err := l.connecting.lockIn(ctx); err != nil {
		return err
	}
	defer l.connecting.Unlock()
	if c := l.Client(); c != nil {
		select {
		case <-c.Done():
		default:
			return nil
		}
	}
	return l.reconnect(ctx)
}

// reconnect makes a new connection. The caller holds connecting.
func (l *Upstream) reconnect(ctx context.Context) error {
	o := mcp.ClientOptions{Protocol: l.e.server.Protocol, Info: l.info, Capabilities: l.e.policy.Capabilities(mcp.Legacy, l.capabilities.JSON()), Notified: l.notifiedOutside, Asked: l.askedOutside}
	if slices.Contains(mcp.LegacyVersions, l.version) {
		o.Version = l.version
	}
	if !l.e.policy.WantsTasks() && l.session != nil {
		o.First = mcp.Legacy // of what need not be translated nothing is lost; but who suspends wants the tasks of modern servers
	}
	c, err := mcp.Connect(ctx, l.e.server.Target, o)
	if err != nil {
		if ctx.Err() == nil {
			l.e.fail(err)
		}
		return err
	}
	l.mu.Lock()
	old := l.conn
	l.conn = c
	l.offers = offersOf(c)
	l.mu.Unlock()
	if old != nil {
		l.retire(old)
		l.e.ForgetTools()
	}
	l.restore(ctx, c)
	l.follow(ctx)
	return nil
}

// Use keeps the connection open until the function is called that it returns, also if its client goes; only the end of the endpoint closes it.
func (l *Upstream) Use() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return func() {
		l.mu.Lock()
		l.users--
		last := l.closing && l.users == 0
		l.mu.Unlock()
		if last {
			l.Close()
		}
	}
}

// Close ends the connection and the session with the server.
func (l *Upstream) Close() {
	l.mu.Lock()
	l.closing = true
	used := l.users > 0 && l.e.ctx.Err() == nil
	l.mu.Unlock()
	if used {
		return
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.unfollow()
	c := l.Client()
	l.mu.Lock()
	kept := l.kept
	l.mu.Unlock()
	switch {
	case c == nil:
	case kept:
		_ = c.Detach() // whoever used it is gone
	default:
		_ = c.Close() // as above
	}
}

// Keep keeps the session with the server when the connection is closed.
func (l *Upstream) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = true
}

// ErrorText is an error of a connection, for people.
func (l *Upstream) ErrorText(err error) string {
	return fmt.Sprintf("MCP server %q: %v", l.e.server.Name, err)
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

func (l *Upstream) IsConnected() bool {
	c := l.Client()
	return c != nil && c.Err() == nil
}

// Renew makes a new connection in place of one whose session is lost, unless somebody else has.
func (l *Upstream) Renew(ctx context.Context, lost *mcp.Client) error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	if l.Client() != lost {
		return nil
	}
	return l.reconnect(ctx)
}

// retire ends a connection that another has replaced. If it was only its session that was lost, what else goes on over it is to hear so from the
// server: that it has not looked at a request.
func (l *Upstream) retire(old *mcp.Client) {
	l.e.running.Go(func() {
		over := time.NewTimer(l.e.server.CallLimit()) // after which a call of which nothing is heard has ended
		defer over.Stop()
		select {
		case <-over.C:
		case <-old.Done():
		case <-l.e.ctx.Done():
		}
		_ = old.Detach() // nobody uses it any more
	})
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

// Endpoint is that of the upstream.
func (l *Upstream) Endpoint() *Endpoint { return l.e }

// Session is the legacy session of the client, nil for modern clients.
func (l *Upstream) Session() *mcp.Session { return l.session }

// Capabilities are those of the client, Info is what it calls itself.
func (l *Upstream) Capabilities() jsonobj.Object { return l.capabilities }

// Info is what the client calls itself.
func (l *Upstream) Info() json.RawMessage { return l.info }
