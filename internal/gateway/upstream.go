package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Upstream is one legacy session of a client at the server, or the shared one of modern requests.
// It passes requests on over its connection.
type Upstream struct {
	*connection
	e *Endpoint
	// session is nil for modern clients. key is their spelling of their capabilities.
	session *mcp.Session
	key     string
	// version, capabilities and info are those of the client.
	version      string
	capabilities jsonobj.Object
	info         json.RawMessage

	logs      logLevel
	inFlight  inFlightCalls
	listeners listeners
	follower  follower
}

// newUpstream makes an upstream that is not connected. session is nil for modern clients.
func newUpstream(e *Endpoint, session *mcp.Session, capabilities jsonobj.Object, info json.RawMessage) *Upstream {
	l := &Upstream{e: e, session: session, capabilities: capabilities, info: info}
	l.connection = &connection{connector: l, ctx: e.ctx}
	l.inFlight = inFlightCalls{session: session, capabilities: capabilities}
	l.follower = follower{session: session, ctx: e.ctx, notified: l.notified}
	return l
}

// Endpoint returns the endpoint of the upstream.
func (l *Upstream) Endpoint() *Endpoint { return l.e }

// Session is the legacy session of the client, nil for modern clients.
func (l *Upstream) Session() *mcp.Session { return l.session }

// Capabilities are the client's capabilities.
func (l *Upstream) Capabilities() jsonobj.Object { return l.capabilities }

// Info is the client's name for itself.
func (l *Upstream) Info() json.RawMessage { return l.info }

// ErrorText is an error of a connection, for people.
func (l *Upstream) ErrorText(err error) string {
	return fmt.Sprintf("MCP server %q: %v", l.e.server.Name, err)
}

// serves reports whether the connected upstream serves modern requests with this _meta.
func (l *Upstream) serves(meta jsonobj.Object) bool {
	return l.Client().Era() == mcp.Modern || l.key == string(meta.Get(mcp.MetaClientCapabilities))
}

// dial implements connector.
func (l *Upstream) dial(ctx context.Context) (*mcp.Client, error) {
	o := mcp.ClientOptions{
		Protocol: l.e.server.Protocol, Info: l.info, Notified: l.notifiedOutside, Asked: l.askedOutside,
		Capabilities: l.e.policy.Capabilities(mcp.Legacy, l.capabilities.JSON()),
	}
	if slices.Contains(mcp.LegacyVersions, l.version) {
		o.Version = l.version
	}
	if !l.e.policy.WantsTasks() && l.session != nil {
		// Messages that need no translation lose nothing. But a policy that suspends wants the tasks of
		// modern servers.
		o.First = mcp.Legacy
	}
	c, err := mcp.Connect(ctx, l.e.server.Target, o)
	if err != nil && ctx.Err() != nil {
		return nil, err // nobody waits any more, which says nothing about the server
	}
	if err != nil {
		l.e.readiness.fail(err)
	}
	l.e.tellConnected(err)
	return c, err
}

// connected implements connector. It tells a legacy server what the clients had told it on the old
// connection, and begins to listen at a modern one.
func (l *Upstream) connected(ctx context.Context, c, old *mcp.Client) {
	if old != nil {
		l.e.retire(old)
		l.e.tools.Forget()
	}
	if c.Era() == mcp.Legacy {
		if level := l.logs.get(); level != "" {
			// If this fails, the server has been replaced by another one.
			_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)})
		}
		uris := append(l.follower.uris(), l.listeners.uris()...)
		slices.Sort(uris)
		for _, uri := range slices.Compact(uris) {
			_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}) // as above
		}
	}
	l.follower.follow(ctx, c)
}

// closing implements connector.
func (l *Upstream) closing() { l.follower.unfollow() }

// maxShared is how many sets of capabilities are kept apart at a legacy server.
const maxShared = 8

// Upstreams are the upstreams of an endpoint: one for each legacy session, and those that modern
// requests share.
type Upstreams struct {
	server *Server
	// newShared makes an upstream for modern requests with this _meta.
	newShared func(meta jsonobj.Object) *Upstream

	mu     sync.Mutex
	open   map[*Upstream]bool // nil once the endpoint is closed
	shared []*Upstream
}

// Adopt adds the upstream of a legacy session.
func (u *Upstreams) Adopt(l *Upstream) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	limit := u.server.MaxSessions
	switch {
	case u.open == nil:
		return ErrClosed
	case limit > 0 && len(u.open)-len(u.shared) >= limit:
		return mcp.Errorf(mcp.CodeInternal,
			"MCP server %q has %d sessions, which is the limit; end one, or try again later", u.server.Name, limit)
	}
	u.open[l] = true
	return nil
}

// Release removes an upstream.
func (u *Upstreams) Release(l *Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, l)
}

// Shared finds or makes a shared upstream: the first one, or that for the capabilities in a
// request's _meta.
func (u *Upstreams) Shared(meta jsonobj.Object, first bool) (*Upstream, error) {
	capabilities := string(meta.Get(mcp.MetaClientCapabilities))
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		return nil, ErrClosed
	}
	for _, l := range u.shared {
		if first || l.key == capabilities {
			return l, nil
		}
	}
	if len(u.shared) == maxShared {
		return u.shared[0], nil // each request repeats the client's capabilities
	}
	l := u.newShared(meta)
	u.shared = append(u.shared, l)
	u.open[l] = true
	return l, nil
}

// connectShared returns the connected upstream for a modern request. Modern requests share one,
// since their capabilities come with each request. A legacy server is told of capabilities only
// once, and so each set of capabilities has an upstream of its own there.
func (u *Upstreams) connectShared(ctx context.Context, r *mcp.Request) (*Upstream, error) {
	meta := r.Meta()
	first, err := u.Shared(meta, true)
	if err == nil {
		err = first.Connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	if first.serves(meta) {
		return first, nil
	}
	l, err := u.Shared(meta, false)
	if err != nil {
		return nil, err
	}
	return l, l.Connect(ctx)
}

// Connected returns the upstream of a modern request if it is connected, else nil.
func (u *Upstreams) Connected(r *mcp.Request) *Upstream {
	find := func(first bool) *Upstream {
		l, err := u.Shared(r.Meta(), first)
		if err != nil || !l.IsConnected() {
			return nil
		}
		return l
	}
	l := find(true)
	if l == nil || l.serves(r.Meta()) {
		return l
	}
	return find(false)
}

// count returns how many upstreams there are, and how many of them belong to legacy sessions.
func (u *Upstreams) count() (all, sessions int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open), len(u.open) - len(u.shared)
}

// close closes all upstreams. No more can be opened.
func (u *Upstreams) close() {
	u.mu.Lock()
	open := u.open
	u.open, u.shared = nil, nil
	u.mu.Unlock()
	for l := range open {
		l.Close()
	}
}
