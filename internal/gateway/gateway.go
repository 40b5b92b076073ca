// Package gateway stands between MCP clients and MCP servers. It passes on everything as it came, in
// both protocol eras on both sides.
//
// [Listen] makes a [Gateway], which listens on loopback. [Gateway.Open] gives one client, such as the
// process of an agent, a token and an endpoint for each of its servers. The [Policy] of an endpoint
// decides what becomes of calls of tools: package suspend has one for clients that cannot wait, and
// package tasks one for clients that can. Package catalog serves all servers at one endpoint. The
// gateway knows none of the three, and nothing of rollouts, task directories, agents or the store.
package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// tokenPrefix tells people who find a token what it is.
const tokenPrefix = "evalrun-mcp-"

// pathPrefix is where the endpoints are; the name of the server follows.
const pathPrefix = "/mcp/"

// tokenPath is where clients that cannot send a header have their token: /t/TOKEN/mcp/NAME.
const tokenPath = "/t/"

// healthPath says whether the gateway serves clients, to everybody.
const healthPath = "/healthz"

// ErrClosed is the end of everything.
var ErrClosed = errors.New("the MCP gateway is closed")

// Gateway serves endpoints. It is safe for concurrent use and must be closed.
type Gateway struct {
	listener net.Listener // nil if it listens nowhere
	loopback bool
	server   *http.Server
	serving  sync.WaitGroup
	observer Observer // nil if nobody wants to know
	pages    map[string]http.Handler

	mu     sync.Mutex
	closed bool
	open   map[[sha256.Size]byte]*Access
}

// New makes a gateway that does not listen: its clients are served by [Access.ServeStdio] or [Access.ServeUnix].
func New() *Gateway {
	g := &Gateway{open: map[[sha256.Size]byte]*Access{}, pages: map[string]http.Handler{}}
	g.server = newServer(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, nil) })
	return g
}

// Listen makes a gateway that listens on an address, such as 127.0.0.1:0.
func Listen(address string) (*Gateway, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("MCP gateway: %w", err)
	}
	g := New()
	tcp, _ := listener.Addr().(*net.TCPAddr)
	g.listener, g.loopback = listener, tcp != nil && tcp.IP.IsLoopback()
	g.serving.Go(func() { _ = g.server.Serve(listener) }) // ends with Close
	return g, nil
}

func newServer(serve http.HandlerFunc) *http.Server {
	return &http.Server{Handler: serve, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
}

// Addr is the address that the gateway listens on. One from New has none, and its accesses have no URLs.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// Close ends every access and the gateway.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	var open []*Access
	for _, a := range g.open {
		open = append(open, a)
	}
	g.mu.Unlock()
	var errs []error
	for _, a := range open {
		errs = append(errs, a.Close())
	}
	errs = append(errs, g.server.Close())
	g.serving.Wait()
	return errors.Join(errs...)
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// refusedBody is how long a client that is refused may take for the rest of what it sends.
const refusedBody = time.Second

// refuse answers a request that is not served, and does not wait for its body. reason is that of [Refused].
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, status int, reason, why string) {
	if g.observer != nil {
		g.observer.Refused(Refused{Status: status, Reason: reason, Remote: r.RemoteAddr, Method: r.Method})
	}
	if r.ContentLength != 0 {
		mcp.BoundBody(w, refusedBody)
		w.Header().Set("Connection", "close")
	}
	http.Error(w, "evalrun's MCP gateway: "+why, status)
}

// health says whether the gateway serves clients.
func (g *Gateway) health(w http.ResponseWriter) {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		http.Error(w, "the gateway is being closed", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // who has asked may have gone
}

// serve serves a request of whoever bears a token, of one access only if that is given: a unix socket is one client's.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, only *Access) {
	if only == nil && g.loopback { // on other addresses we do not know by which names we are called, and web sites do not reach a socket
		if err := mcp.CheckHost(r); err != nil {
			g.refuse(w, r, http.StatusForbidden, "host", err.Error())
			return
		}
	}
	if only == nil && r.URL.Path == healthPath {
		g.health(w)
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") { // in any case: RFC 9110, 11.1
		token = ""
	}
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, tokenPath); ok {
		token, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	g.mu.Lock()
	a := g.open[digest(token)]
	g.mu.Unlock()
	if a == nil || only != nil && a != only {
		w.Header().Set("WWW-Authenticate", `Bearer realm="evalrun MCP gateway"`)
		g.refuse(w, r, http.StatusUnauthorized, "token", "this request bears no token of a client that is connected; use the URL and the Authorization header that you were given")
		return
	}
	if page := g.pages[path]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	name, err := url.PathUnescape(strings.TrimPrefix(path, pathPrefix))
	handler := a.handler(name)
	if err != nil || handler == nil || !strings.HasPrefix(path, pathPrefix) {
		g.refuse(w, r, http.StatusNotFound, "endpoint", "no such MCP server here; the path is "+pathPrefix+"NAME")
		return
	}
	r.Header.Del("Authorization") // it was for us
	handler.ServeHTTP(w, r)
}

// AccessOptions are what a client is given.
type AccessOptions struct {
	// Servers are the servers that it may reach, with different names.
	Servers []Server
	// Policy makes what decides on calls of tools, one for each endpoint; nil passes on what the servers answer.
	Policy func(e *Endpoint) Policy
	// Tasks gives clients tasks for calls that take long; nil does not. It has policies of its own.
	Tasks Tasks
	// Combine makes one more endpoint, which has what all servers have; nil makes none. It needs Tasks.
	Combine func(endpoints []*Endpoint, tasks Tasks) Combined
	// Token is what the client must bear; empty for a fresh one.
	Token string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Access is what one client may reach: an endpoint for each of its servers, under one token. It is safe for concurrent use and must be closed.
type Access struct {
	gateway   *Gateway
	token     string
	endpoints map[string]*Endpoint
	order     []*Endpoint
	tasks     Tasks
	combined  Combined         // nil if there is none
	all       *mcp.HTTPHandler // serves combined

	// ctx ends with the access, stdio counts the clients that are served on lines.
	ctx    context.Context
	cancel context.CancelCauseFunc
	stdio  sync.WaitGroup

	closing sync.Once
	mu      sync.Mutex
	sockets []*http.Server
	serving sync.WaitGroup
}

// Open opens an access.
func (g *Gateway) Open(o AccessOptions) (_ *Access, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Access{gateway: g, token: o.Token, endpoints: map[string]*Endpoint{}}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	if a.token == "" {
		a.token = tokenPrefix + rand.Text() + rand.Text()
	}
	if a.tasks = o.Tasks; o.Tasks == nil {
		a.tasks = noTasks{}
	} else if o.Policy != nil {
		return nil, errors.New("long-running work is either for tasks or for calls")
	}
	defer func() {
		if err != nil {
			a.end()
		}
	}()
	for _, s := range o.Servers {
		if s.Name == "" || a.endpoints[s.Name] != nil {
			return nil, fmt.Errorf("MCP server %q: expected a name of its own", s.Name)
		}
		e := NewEndpoint(s, o.Policy, o.Now)
		e.tasks = a.tasks
		if policy := a.tasks.Policy(e); policy != nil {
			e.policy = policy
		}
		e.http = mcp.NewHTTPHandler(g.observe(s.Name, e), a.tasks.ServerOptions(s.Name, e.open))
		a.endpoints[s.Name] = e
		a.order = append(a.order, e)
	}
	if o.Combine != nil {
		if o.Tasks == nil {
			return nil, errors.New("one endpoint for all servers needs tasks")
		}
		a.combined = o.Combine(a.order, a.tasks)
		name := a.combined.Name()
		if a.endpoints[name] != nil {
			return nil, fmt.Errorf("MCP server %q: the name is taken by the endpoint for all servers", name)
		}
		a.all = mcp.NewHTTPHandler(g.observe(name, a.combined), a.tasks.ServerOptions(name, a.combined.Open))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	sum := digest(a.token)
	if err := a.tasks.Start(hex.EncodeToString(sum[:])); err != nil {
		return nil, err
	}
	g.open[digest(a.token)] = a
	return a, nil
}

// Combined is one endpoint that has what all servers have.
type Combined interface {
	mcp.Handler
	Name() string
	// Open makes the upstreams of a legacy session, which are not connected; it is an [Opener].
	Open(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error
}

// handler serves an endpoint over HTTP, nil if there is none of that name.
func (a *Access) handler(name string) http.Handler {
	if a.combined != nil && name == a.combined.Name() {
		return a.all
	}
	if e := a.endpoints[name]; e != nil {
		return e.http
	}
	return nil
}

// ServeStdio serves one client of an endpoint on lines, until it ends, or ctx or the access does; see [mcp.ServeStdio]. Who has the ends of the
// connection needs no token.
func (a *Access) ServeStdio(ctx context.Context, name string, r io.Reader, w io.Writer) error {
	var handler mcp.Handler
	switch e := a.endpoints[name]; {
	case a.combined != nil && name == a.combined.Name():
		handler = a.combined
	case e != nil:
		handler = e
	default:
		return fmt.Errorf("there is no MCP server %q", name)
	}
	a.mu.Lock()
	if a.ctx.Err() != nil {
		a.mu.Unlock()
		return ErrClosed
	}
	a.stdio.Add(1)
	a.mu.Unlock()
	defer a.stdio.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(ErrClosed) })()
	return mcp.ServeStdio(ctx, r, w, a.gateway.observe(name, handler), mcp.ServerOptions{})
}

// Token is what the client must send as Authorization: Bearer.
func (a *Access) Token() string { return a.token }

// Path is the path of a server's endpoint.
func (a *Access) Path(server string) string { return pathPrefix + url.PathEscape(server) }

// URL is that of a server's endpoint on the gateway's own address.
func (a *Access) URL(server string) string {
	return "http://" + a.gateway.listener.Addr().String() + a.Path(server)
}

// URLWithToken is that of a server's endpoint for a client that cannot send headers. It is as secret as the token.
func (a *Access) URLWithToken(server string) string {
	return "http://" + a.gateway.listener.Addr().String() + tokenPath + a.token + a.Path(server)
}

// Names are those of all endpoints: those of the servers in their order, and that for all servers if there is one.
func (a *Access) Names() []string {
	var names []string
	for _, e := range a.order {
		names = append(names, e.Name())
	}
	if a.combined != nil {
		names = append(names, a.combined.Name())
	}
	return names
}

// Endpoint returns the endpoint of a server, nil if there is none of that name.
func (a *Access) Endpoint(server string) *Endpoint { return a.endpoints[server] }

// Sharing counts the servers that have a tool of a name which the client may see, as far as they have listed their tools.
func (a *Access) Sharing(tool string) (n int) {
	for _, e := range a.order {
		if t, ok := e.LookupTool(tool); ok && !t.hidden {
			n++
		}
	}
	return n
}

// Endpoints are all endpoints, in the order of the servers.
func (a *Access) Endpoints() []*Endpoint { return a.order }

// ServeUnix serves this access, and no other, on a unix socket until the access is closed. A socket that is left at that path is replaced.
func (a *Access) ServeUnix(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("MCP gateway: %w", err)
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("MCP gateway: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("MCP gateway: %w", errors.Join(err, listener.Close()))
	}
	server := newServer(func(w http.ResponseWriter, r *http.Request) { a.gateway.serve(w, r, a) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sockets = append(a.sockets, server)
	a.serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	return nil
}

// UnreachableError is a server that could not be reached.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("MCP server %q cannot be reached: %v", e.Server, e.Err)
}

// Ready waits until the client has seen the tools of every server. The error is an *UnreachableError, of the first server that could not be reached, or
// that of ctx.
func (a *Access) Ready(ctx context.Context) error {
	for _, e := range a.order {
		select {
		case <-e.ready:
		case <-e.failed:
			return &UnreachableError{e.server.Name, e.failure()}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close revokes the token and ends the client's sessions and the connections to its servers.
func (a *Access) Close() error {
	var errs []error
	a.closing.Do(func() {
		a.gateway.mu.Lock()
		delete(a.gateway.open, digest(a.token))
		a.gateway.mu.Unlock()
		a.end()
		a.mu.Lock()
		sockets := a.sockets
		a.mu.Unlock()
		for _, s := range sockets {
			errs = append(errs, s.Close())
		}
		a.serving.Wait()
	})
	return errors.Join(errs...)
}

// end ends the sessions and the connections.
func (a *Access) end() {
	a.tasks.Leave()
	a.mu.Lock()
	a.cancel(ErrClosed)
	a.mu.Unlock()
	for _, e := range a.order {
		e.cancel()
	}
	a.stdio.Wait()
	if a.all != nil {
		a.all.Close()
	}
	var closing sync.WaitGroup
	for _, e := range a.order {
		closing.Go(e.Close)
	}
	closing.Wait()
	a.tasks.Close()
}
