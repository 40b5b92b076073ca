package gateway

import (
	"context"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

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
