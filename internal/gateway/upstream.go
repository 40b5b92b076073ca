package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

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

// Keep keeps the session with the server when the connection is closed.
func (l *Upstream) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = true
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

// ErrorText is an error of a connection, for people.
func (l *Upstream) ErrorText(err error) string {
	return fmt.Sprintf("MCP server %q: %v", l.e.server.Name, err)
}

// Endpoint is that of the upstream.
func (l *Upstream) Endpoint() *Endpoint { return l.e }

// Session is the legacy session of the client, nil for modern clients.
func (l *Upstream) Session() *mcp.Session { return l.session }

// Capabilities are those of the client, Info is what it calls itself.
func (l *Upstream) Capabilities() jsonobj.Object { return l.capabilities }

// Info is what the client calls itself.
func (l *Upstream) Info() json.RawMessage { return l.info }
