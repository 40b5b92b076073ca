package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// AccessOptions say what a client gets.
type AccessOptions struct {
	// Servers are the servers that the client may reach. Their names differ.
	Servers []Server
	// Policy makes the policy of each endpoint, which decides on calls of tools. If it is nil,
	// endpoints pass on what the servers answer.
	Policy func(e *Endpoint) Policy
	// Tasks gives clients tasks for calls that take long. If it is nil, clients get none. It has
	// policies of its own.
	Tasks Tasks
	// Combine makes one more endpoint, which has the tools of all servers; nil makes none. It needs
	// Tasks.
	Combine func(endpoints []*Endpoint, tasks Tasks) Combined
	// Token is what the client must bear. If it is empty, a fresh one is made.
	Token string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Access is what one client may reach: an endpoint for each of its servers, under one token. It is
// safe for concurrent use and must be closed.
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

// Combined is one endpoint that serves what all servers have.
type Combined interface {
	mcp.Handler
	Name() string
	// Open makes the upstreams of a legacy session, which are not connected; it is an [Opener].
	Open(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error
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
		e.tasks, e.observer = a.tasks, g.observer
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

// Token is what the client must send as Authorization: Bearer.
func (a *Access) Token() string { return a.token }

// Path is the path of a server's endpoint.
func (a *Access) Path(server string) string { return pathPrefix + url.PathEscape(server) }

// URL is the URL of a server's endpoint on the gateway's own address.
func (a *Access) URL(server string) string {
	return "http://" + a.gateway.listener.Addr().String() + a.Path(server)
}

// URLWithToken is the URL of a server's endpoint for a client that cannot send headers. It is as
// secret as the token.
func (a *Access) URLWithToken(server string) string {
	return "http://" + a.gateway.listener.Addr().String() + tokenPath + a.token + a.Path(server)
}

// Names are the names of all endpoints: those of the servers in their order, then that for all
// servers if there is one.
func (a *Access) Names() []string {
	var names []string
	for _, e := range a.order {
		names = append(names, e.server.Name)
	}
	if a.combined != nil {
		names = append(names, a.combined.Name())
	}
	return names
}

// Endpoint returns the endpoint of a server, or nil if no server has that name.
func (a *Access) Endpoint(server string) *Endpoint { return a.endpoints[server] }

// Endpoints are all endpoints, in the order of the servers.
func (a *Access) Endpoints() []*Endpoint { return a.order }

// Sharing counts the servers that have a tool with this name which the client may see, as far as
// they have listed their tools.
func (a *Access) Sharing(tool string) (n int) {
	for _, e := range a.order {
		if t, ok := e.tools.Lookup(tool); ok && !t.hidden {
			n++
		}
	}
	return n
}

// Sessions returns how many legacy sessions are open at each endpoint. A session of the endpoint
// for all servers counts as one of every server.
func (a *Access) Sessions() map[string]int {
	open := map[string]int{}
	for _, e := range a.order {
		_, open[e.server.Name] = e.upstreams.count()
	}
	return open
}

// UnreachableError says that a server could not be reached.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("MCP server %q cannot be reached: %v", e.Server, e.Err)
}

// Ready waits until the client has seen the tools of every server. The error is an
// *UnreachableError for the first server that could not be reached, or that of ctx.
func (a *Access) Ready(ctx context.Context) error {
	for _, e := range a.order {
		failure, err := e.readiness.wait(ctx)
		if failure != nil {
			return &UnreachableError{e.server.Name, failure}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ServeStdio serves one client of an endpoint on lines, until the client, ctx or the access ends;
// see [mcp.ServeStdio]. The client needs no token, because it holds the ends of the connection.
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

// ServeUnix serves only this access on a unix socket until the access is closed. It replaces a
// socket that was left at that path.
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
