package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Target is the address of a server. One of Start and URL is set.
type Target struct {
	// Start starts a stdio server. Closing the connection ends the process, reaps it and ends a Read.
	// The context ends with the connection, after that.
	Start func(ctx context.Context) (io.ReadWriteCloser, error)
	// URL is an endpoint of streamable HTTP, or of the HTTP+SSE transport of 2024-11-05 if SSE is
	// set.
	URL string
	SSE bool
	// Header is sent with every request. It never goes to another server, because redirects to others
	// are not followed.
	Header http.Header
	// HTTPClient sends the requests. It must have no overall timeout, which would end streams. If it
	// is nil, the client has one of its own.
	HTTPClient *http.Client
}

// ClientOptions are settings of a client beside its target. The zero value works.
type ClientOptions struct {
	Protocol     Era             // the era to speak; "" finds out
	First        Era             // the era to try first when finding out; "" is Modern
	Version      string          // the legacy version to offer; "" is the newest
	Info         json.RawMessage // clientInfo; nil: evalrun and its version
	Capabilities json.RawMessage // client capabilities, an object; nil: {}
	// Notified is called with the notifications that belong to no call, or to one that does not want
	// them, in the order in which they came. It is not called concurrently, must not block and must
	// not call the client.
	Notified func(method string, params json.RawMessage)
	// Asked answers the requests of a legacy server that belong to no call, each on a goroutine of its
	// own. Its context ends with the connection, or when the server withdraws the request. If Asked is
	// nil, the answer is CodeMethodNotFound. A ping is always answered.
	Asked            func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error)
	HandshakeTimeout time.Duration // 0: 30 s
	ProbeTimeout     time.Duration // for finding out the era of a server; 0: 5 s
	MaxMessage       int           // the longest message that is read, in bytes; 0: 64 MiB
	// Session is the session of another client, possibly of another process, to go on with. If it is
	// nil, a new one begins.
	Session *SessionState

	// NoStream opens no standalone stream of a legacy server over HTTP. Messages outside of calls are
	// then not heard.
	NoStream bool

	// wait waits for a time or until the context is done. If it is nil, the clock is used.
	wait func(ctx context.Context, d time.Duration) error
}

// SessionState is what another process needs to go on with a session.
type SessionState struct {
	Era       Era    `json:"era"`
	Version   string `json:"version"`
	SessionID string `json:"sessionId,omitempty"` // empty if the server gave none
	// InitializeResult is the result of [Client.InitializeResult].
	InitializeResult json.RawMessage `json:"hello,omitempty"`
}

// Client is a connection to a server. Its methods may be called concurrently, except from the
// Notified functions.
type Client struct {
	o       ClientOptions
	link    clientLink
	detach  func() bool // lets the connection outlive the context of Connect
	era     Era
	version string
	// initializeResult is what the server answered when the session was opened.
	initializeResult json.RawMessage

	life     *lifetime
	calls    *callTable
	receiver *clientReceiver
	closing  sync.Once
	closeErr error
}

// clientLink is a transport's part of a client. It hands the messages that it reads to
// clientReceiver.receive.
type clientLink interface {
	// call sends a request and waits for its outcome: a result or an error that says what happened,
	// the context's included.
	call(ctx context.Context, p *clientCall) (json.RawMessage, error)
	// send sends a notification or the answer to a request of the server.
	send(ctx context.Context, m message) error
	// close ends the connection. endSession tells the server that the session is over. close is called
	// once, after the client's lifetime has ended.
	close(endSession bool) error
}

// newClient makes a client that speaks an era and is not connected. Its first call has the id after
// lastID.
func newClient(o ClientOptions, era Era, lastID int64) *Client {
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 30*time.Second)
	o.ProbeTimeout = probeTimeout(o)
	o.MaxMessage = cmp.Or(o.MaxMessage, 64<<20)
	o.Version = cmp.Or(o.Version, LegacyVersions[0])
	if o.Info == nil {
		o.Info = Info()
	}
	if o.Capabilities == nil {
		o.Capabilities = json.RawMessage("{}")
	}
	if o.wait == nil {
		o.wait = clientWait
	}
	c := &Client{o: o, era: era, life: newLifetime(), calls: newCallTable(lastID)}
	c.receiver = &clientReceiver{
		life: c.life, calls: c.calls, era: era, notified: o.Notified, asked: o.Asked,
		sendAnswer: func(m message) {
			_ = c.link.send(c.life.ctx, m) // a server that does not take it will say so in answer to the call
		},
		serving: map[string]context.CancelCauseFunc{},
	}
	return c
}

func probeTimeout(o ClientOptions) time.Duration { return cmp.Or(o.ProbeTimeout, 5*time.Second) }

// Era is the protocol that the connection speaks.
func (c *Client) Era() Era { return c.era }

// Version is the protocol version that the connection speaks.
func (c *Client) Version() string { return c.version }

// InitializeResult is the raw result of initialize or server/discover. It is shared and must not be
// changed.
func (c *Client) InitializeResult() json.RawMessage { return c.initializeResult }

// State is what another process needs to go on with the session after [Client.Detach].
func (c *Client) State() SessionState {
	s := SessionState{Era: c.era, Version: c.version, InitializeResult: c.initializeResult}
	if l, ok := c.link.(*httpLink); ok {
		s.SessionID = l.sessionID()
	}
	return s
}

// Ignored is how many lines, events and messages came that were no message, or answered nothing.
func (c *Client) Ignored() int64 { return c.receiver.ignored.Load() }

// Close ends the session and the connection, the process of a stdio server included, and waits for
// everything that the client started. Calls in flight fail with ErrClosed.
func (c *Client) Close() error { return c.shut(true) }

// Detach ends the connection and leaves the session to another process. A stdio server is ended all
// the same.
func (c *Client) Detach() error { return c.shut(false) }

// Done is closed when the connection cannot be used any more. A connection over HTTP ends only by
// Close or Detach.
func (c *Client) Done() <-chan struct{} { return c.life.ctx.Done() }

// Err says why the connection has ended. The error wraps ErrClosed. It is nil before the end.
func (c *Client) Err() error { return c.life.err() }

func (c *Client) shut(endSession bool) error {
	err := c.end(errClientClosed, endSession)
	c.life.wait()
	return err
}

// end ends the connection, once.
func (c *Client) end(cause error, endSession bool) error {
	c.life.end(cause)
	calls := c.calls.close()
	if l, ok := c.link.(*stdioLink); ok {
		l.end(calls)
	} else {
		for _, p := range calls {
			p.settle(clientAnswer{err: c.Err()})
		}
	}
	c.closing.Do(func() {
		c.life.telling.Wait() // not every server cancels the calls of a session that ends
		if c.link != nil {    // otherwise it was never opened
			c.closeErr = c.link.close(endSession)
		}
	})
	return c.closeErr
}

// Info is the name and version of evalrun, as a client or a server.
func Info() json.RawMessage {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return jsonobj.Object{
		{Key: "name", Value: jsonobj.Quote("evalrun")}, {Key: "version", Value: jsonobj.Quote(version)},
	}.JSON()
}

// clientWait waits on the clock.
func clientWait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errClientClosed = fmt.Errorf("%w: closed by us", ErrClosed)
