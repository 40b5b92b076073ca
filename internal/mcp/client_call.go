package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// Call is a request.
type Call struct {
	Method string
	// Params may be nil. Their _meta may hold a progressToken of the caller's choice. They must not
	// be changed any more.
	Params json.RawMessage
	// Checked says that Params are known to be JSON, as those of a received request are, and that
	// Meta is their _meta.
	Checked      bool
	Meta         jsonobj.Object  // is not changed
	Capabilities json.RawMessage // for this request in Modern; nil: those of the options
	Info         json.RawMessage // clientInfo for this request in Modern; nil: that of the options
	// Header are further headers of the request over streamable HTTP. They replace no others.
	Header map[string]string
	// Notified is called with the server's notifications for this call, in order, before Call returns.
	// Progress bears the caller's own token. Notified must not block longer than the call's context
	// lasts, and must not call the client. If it is nil, they are treated as notifications without a
	// call.
	Notified func(method string, params json.RawMessage)
	// Asked answers the requests of a legacy server that belong to this call. Over HTTP they are those
	// on its stream, over stdio and SSE those that come while it is the only call in flight. Its
	// context ends with the call. If Asked is nil, ClientOptions.Asked answers.
	Asked func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error)
}

// clientCall is a call in flight.
type clientCall struct {
	Call // as the caller made it, except that the params are those that are sent

	id    int64
	token json.RawMessage // the caller's progress token; nil: no progress was asked for
	ctx   context.Context // of the caller
	// answers gets one answer, from whoever takes the call out of the callTable.
	answers chan clientAnswer
	line    atomic.Pointer[jsonrpc.Line] // the line on which it is sent over stdio; nil before that

	notifying  sync.Mutex         // held while Notified runs
	over       bool               // Call has returned: Notified must not run any more
	asking     context.Context    // ends with the call; nil before the server has asked something
	stopAsking context.CancelFunc // of asking
}

// clientAnswer is the outcome of a call.
type clientAnswer struct {
	result json.RawMessage
	err    error
}

// Call sends a request and waits for its result. The error is an [*Error] if the server answered
// one. Otherwise it wraps the error of ctx, in which case the server was told and its late answer
// is dropped; or ErrClosed, perhaps with ErrUnsent; or ErrSessionLost; or a [*StatusError]. A call
// of MethodListen lasts as long as the subscription.
func (c *Client) Call(ctx context.Context, call Call) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, call.failed(clientContextError(ctx))
	}
	p, err := c.begin(ctx, call)
	if err != nil {
		return nil, call.failed(err)
	}
	defer c.finish(p)
	result, err := c.link.call(ctx, p)
	return result, call.failed(err)
}

// failed adds to an error the name of the call, unless the server has made the error.
func (call *Call) failed(err error) error {
	if err == nil {
		return nil
	}
	var answer *Error
	if errors.As(err, &answer) {
		return err
	}
	return fmt.Errorf("%s: %w", call.Method, err)
}

// begin makes a clientCall from the caller's call, ready to be sent.
func (c *Client) begin(ctx context.Context, call Call) (*clientCall, error) {
	p := &clientCall{
		Call: call, id: c.calls.nextID(), ctx: ctx, answers: make(chan clientAnswer, 1),
	}
	if err := c.addMeta(p); err != nil {
		return nil, err
	}
	if !c.calls.add(p) {
		return nil, clientUnsent(c.Err())
	}
	return p, nil
}

// finish makes sure that nothing of a call happens after it.
func (c *Client) finish(p *clientCall) {
	c.calls.take(p)
	p.notifying.Lock()
	defer p.notifying.Unlock()
	p.over = true
	if p.asking != nil {
		p.stopAsking()
	}
}

// settle gives the call its answer. The caller has taken it out of the callTable.
func (p *clientCall) settle(a clientAnswer) { p.answers <- a }

// askingContext is the context in which the server's questions are answered. It ends with the call.
func (p *clientCall) askingContext() context.Context {
	p.notifying.Lock()
	defer p.notifying.Unlock()
	if p.asking == nil {
		p.asking, p.stopAsking = context.WithCancel(p.ctx)
		if p.over {
			p.stopAsking()
		}
	}
	return p.asking
}

// addMeta sets the members of _meta that belong to this hop. If there is nothing to set, the params
// stay as they are, to the byte.
func (c *Client) addMeta(p *clientCall) error {
	if p.Params != nil && !p.Checked && !jsonobj.Valid(p.Params) {
		return errors.New("the params are not JSON")
	}
	if doc := p.Params[jsonobj.SkipSpace(p.Params, 0):]; !jsonobj.IsNull(doc) && doc[0] != '{' {
		return errors.New("the params are no object")
	}
	meta, own := p.Meta, false
	if !p.Checked {
		var err error
		if meta, err = jsonobj.ParseObject(jsonobj.Get(p.Params, "_meta")); err != nil {
			return errors.New("the _meta of the params is no object")
		}
	}
	set := func(key string, value json.RawMessage) {
		if bytes.Equal(meta.Get(key), value) {
			return
		}
		if !own {
			meta, own = slices.Clone(meta), true
		}
		meta = meta.Set(key, value)
	}
	if token := meta.Get(MetaProgressToken); !jsonobj.IsNull(token) {
		p.token = token
		set(MetaProgressToken, p.rawID())
	}
	if c.era == Modern {
		set(MetaProtocolVersion, quotedModern)
		set(MetaClientInfo, clientOr(p.Info, c.o.Info))
		set(MetaClientCapabilities, clientOr(p.Capabilities, c.o.Capabilities))
	} else {
		// The keys belong to somebody else, and would make a server of both eras take the request for a
		// modern one.
		isModern := func(m jsonobj.Member) bool { return slices.Contains(clientModernMeta, m.Key) }
		if slices.ContainsFunc(meta, isModern) {
			meta, own = slices.DeleteFunc(slices.Clone(meta), isModern), true
		}
	}
	if own {
		params, err := jsonobj.ParseObject(p.Params)
		if err != nil {
			return errors.New("the params are no object")
		}
		p.Params = params.Set("_meta", meta.JSON()).JSON()
	}
	return nil
}

// clientModernMeta are the keys of _meta that make a request a modern one.
var clientModernMeta = []string{MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaLogLevel}

var quotedModern = jsonobj.Quote(Version2026_07_28)

func clientOr(value, otherwise json.RawMessage) json.RawMessage {
	if value == nil {
		return otherwise
	}
	return value
}

// Notify sends a notification. It waits until the notification is written or, over HTTP, taken. The
// errors are those of Call.
func (c *Client) Notify(ctx context.Context, method string, params json.RawMessage) error {
	err := c.Err()
	switch {
	case ctx.Err() != nil:
		err = clientContextError(ctx)
	case params != nil && !jsonobj.Valid(params):
		err = errors.New("the params are not JSON")
	case err == nil:
		err = c.link.send(ctx, message{Method: method, Params: params})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (p *clientCall) rawID() json.RawMessage { return strconv.AppendInt(nil, p.id, 10) }

func (p *clientCall) message() message {
	return message{ID: p.rawID(), Method: p.Method, Params: p.Params}
}

// answered reports whether the answer is there.
func (p *clientCall) answered() bool { return len(p.answers) > 0 }

// deliver hands a notification to the call. It returns false if the call wants none.
func (p *clientCall) deliver(method string, params json.RawMessage) bool {
	if p.Notified == nil {
		return false
	}
	p.notifying.Lock()
	defer p.notifying.Unlock()
	if !p.over {
		p.Notified(method, params)
	}
	return true
}

// await waits for the answer of a call on a stream that all calls share.
func (c *Client) await(ctx context.Context, p *clientCall) (json.RawMessage, error) {
	select {
	case a := <-p.answers:
		return a.result, a.err
	case <-ctx.Done():
	}
	if !c.calls.take(p) { // the answer came at the same time
		a := <-p.answers
		return a.result, a.err
	}
	c.tellCancelled(p, context.Cause(ctx))
	return nil, clientContextError(ctx)
}

// clientTellTimeout is how long it may take to tell a server that nobody waits for a call any more.
const clientTellTimeout = 5 * time.Second

// tellCancelled tells the server that nobody waits for a call any more. The caller does not wait
// until the server is told.
func (c *Client) tellCancelled(p *clientCall, cause error) {
	if p.Method == MethodInitialize { // the specification forbids it
		return
	}
	m := message{Method: NoteCancelled, Params: jsonobj.Object{
		{Key: "requestId", Value: p.rawID()}, {Key: "reason", Value: jsonobj.Quote(cause.Error())},
	}.JSON()}
	c.life.tell(func() {
		ctx, cancel := context.WithTimeout(context.Background(), clientTellTimeout)
		defer cancel()
		_ = c.link.send(ctx, m) // a server that cannot be told does no harm
	})
}

// sending returns the context in which a message is sent over HTTP. It ends with the connection,
// except for messages that the server must get before that.
func (c *Client) sending(ctx context.Context, m message) (context.Context, context.CancelFunc) {
	if m.Method == NoteCancelled {
		return ctx, func() {}
	}
	bound, _, cancel := c.life.bind(ctx)
	return bound, cancel
}
