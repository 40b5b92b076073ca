package gateway

import (
	"context"
	"sync"

	"github.com/evalrun/evalrun/internal/mcp"
)

// connector makes connections to a server, and is told when they come and go. connection calls its
// methods one at a time.
type connector interface {
	dial(ctx context.Context) (*mcp.Client, error)
	// connected is called with a new connection and the one that it replaces; old is nil for the
	// first.
	connected(ctx context.Context, c, old *mcp.Client)
	// closing is called before a connection is closed for good.
	closing()
}

// connection is the connection of an upstream to its server, which is made again when it is lost.
type connection struct {
	connector connector
	ctx       context.Context // ends with the endpoint

	connecting turn
	mu         sync.Mutex
	client     *mcp.Client
	offers     offers
	// kept says that the session with the server must not be ended, because another process goes on
	// with it.
	kept bool
	// users counts the users of the connection, whose client may be gone. closed says that the last of
	// them has to close it.
	users  int
	closed bool
}

// Client returns the connection, which may have ended. It is not nil once Connect has succeeded.
func (c *connection) Client() *mcp.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client
}

// Offered is what the server said of itself.
func (c *connection) Offered() offers {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offers
}

// IsConnected reports whether there is a connection that has not ended.
func (c *connection) IsConnected() bool {
	client := c.Client()
	return client != nil && client.Err() == nil
}

// Connect makes the connection, unless there is a good one.
func (c *connection) Connect(ctx context.Context) error {
	if err := c.connecting.lockIn(ctx); err != nil {
		return err
	}
	defer c.connecting.Unlock()
	if client := c.Client(); client != nil {
		select {
		case <-client.Done():
		default:
			return nil
		}
	}
	return c.reconnect(ctx)
}

// Renew makes a new connection in place of one whose session is lost, unless somebody else has.
func (c *connection) Renew(ctx context.Context, lost *mcp.Client) error {
	c.connecting.Lock()
	defer c.connecting.Unlock()
	if c.Client() != lost {
		return nil
	}
	return c.reconnect(ctx)
}

// reconnect makes a new connection. The caller holds connecting.
func (c *connection) reconnect(ctx context.Context) error {
	client, err := c.connector.dial(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	old := c.client
	c.client = client
	c.offers = offersOf(client)
	c.mu.Unlock()
	c.connector.connected(ctx, client, old)
	return nil
}

// Use keeps the connection open until done is called, even if the client goes. Only the end of the
// endpoint closes it earlier.
func (c *connection) Use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	return func() {
		c.mu.Lock()
		c.users--
		last := c.closed && c.users == 0
		c.mu.Unlock()
		if last {
			c.Close()
		}
	}
}

// Keep keeps the session with the server when the connection is closed.
func (c *connection) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = true
}

// Close ends the connection and the session with the server.
func (c *connection) Close() {
	c.mu.Lock()
	c.closed = true
	used := c.users > 0 && c.ctx.Err() == nil
	c.mu.Unlock()
	if used {
		return
	}
	c.connecting.Lock()
	defer c.connecting.Unlock()
	c.connector.closing()
	c.mu.Lock()
	client, kept := c.client, c.kept
	c.mu.Unlock()
	switch {
	case client == nil:
	case kept:
		_ = client.Detach() // nobody uses the connection any more
	default:
		_ = client.Close() // as above
	}
}

// isClosed reports whether we have closed the connection ourselves, or are about to.
func (c *connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.ctx.Err() != nil
}

// turn is a mutex for which one can wait until a context ends, because connecting to a server that
// does not answer takes long. The zero value is free.
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
