package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// clientMaxAsked is how many requests of a server are answered at once; what exceeds it gets no answer.
const clientMaxAsked = 256

var (
	// errClientSubscription ends the call of a subscription that the server does not want to serve any more.
	errClientSubscription = errors.New("the MCP server has ended the subscription")
	// errClientWithdrawn is the cause of the end of a request that the server does not want answered any more.
	errClientWithdrawn = errors.New("the MCP server has withdrawn the request")
)

// receive handles what came in, one message or a batch of 2025-03-26, before it returns, but for requests of the server. from is the
// call on whose stream it came; nil: on one that all share. The text belongs to the client from then on.
func (c *Client) receive(from *clientCall, text []byte) {
	text = text[jsonobj.SkipSpace(text, 0):]
	if len(text) > 0 && text[0] == '[' {
		var batch []json.RawMessage
		if json.Unmarshal(text, &batch) == nil {
			for _, one := range batch {
				c.receiveOne(from, one)
			}
			return
		}
	}
	c.receiveOne(from, text)
}

func (c *Client) receiveOne(from *clientCall, text []byte) {
	m, err := jsonrpc.Parse(text)
	switch {
	case err != nil:
		c.receiveMalformed(from, text)
	case m.IsRequest():
		c.receiveRequest(from, m)
	case m.IsResponse():
		c.receiveAnswer(from, m)
	default:
		c.receiveNotification(from, m)
	}
}

// receiveAnswer hands an answer to its call. One that nobody waits for came too late, or was never asked for.
func (c *Client) receiveAnswer(from *clientCall, m message) {
	p := c.lookup(m.ID)
	if jsonobj.IsNull(m.ID) && m.Error != nil {
		// The server could not read the request. It is clear which one only if there is one.
		if p = from; p == nil {
			p = c.only()
		}
	}
	if p == nil || from != nil && from != p {
		c.ignored.Add(1)
		return
	}
	a := clientAnswer{result: m.Result}
	if m.Error != nil {
		a.err = ParseError(m.Error)
	}
	c.settle(p, a)
}

// receiveMalformed fails the call that an answer is for which is none, so that nobody waits for a better one. The text need not be valid JSON, as
// long as its outermost members can be told: an answer may be nested deeper than JSON is read here.
func (c *Client) receiveMalformed(from *clientCall, text []byte) {
	o, err := jsonobj.ParseObject(text)
	if err != nil || o.Has("method") {
		c.ignored.Add(1)
		return
	}
	if o.Get("id") == nil && from != nil && clientIsObject(o.Get("error")) {
		c.settle(from, clientAnswer{err: ParseError(o.Get("error"))}) // the id should be null
		return
	}
	p := c.lookup(o.Get("id"))
	if p == nil || from != nil && from != p {
		c.ignored.Add(1)
		return
	}
	why := `it needs jsonrpc "2.0" and one of result and error`
	if !jsonobj.Valid(text) {
		why = fmt.Sprintf("it is not JSON, or is nested deeper than %d levels", jsonobj.MaxDepth)
	}
	c.settle(p, clientAnswer{err: fmt.Errorf("%w: %s, but is %s", errClientMalformed, why, clientExcerpt(text))})
}

func (c *Client) receiveNotification(from *clientCall, m message) {
	if c.silent.Load() {
		return
	}
	p := from
	switch m.Method {
	case NoteProgress:
		c.receiveProgress(m)
		return
	case NoteCancelled:
		if c.receiveCancelled(m.Params) {
			return
		}
	case NoteMessage:
		if p == nil && c.era == Modern {
			p = c.only() // such a server logs for requests only, but does not say for which
		}
	}
	if p == nil {
		if params, err := jsonobj.ParseObject(m.Params); err == nil {
			p = c.lookup(params.Object("_meta").Get(MetaSubscriptionID))
		}
	}
	if p != nil && p.deliver(m.Method, m.Params) || c.o.Notified == nil {
		return
	}
	c.notifying.Lock()
	defer c.notifying.Unlock()
	c.o.Notified(m.Method, m.Params)
}

// receiveProgress gives progress to the call that it is for, under the caller's own token. What comes after the answer is dropped.
func (c *Client) receiveProgress(m message) {
	params, err := jsonobj.ParseObject(m.Params)
	p := c.lookup(params.Get(MetaProgressToken))
	if err != nil || p == nil || p.token == nil {
		c.ignored.Add(1)
		return
	}
	p.deliver(m.Method, params.Set(MetaProgressToken, p.token).JSON())
}

// receiveCancelled ends what the server does not want any more: a request of its own, or a subscription of ours.
func (c *Client) receiveCancelled(params json.RawMessage) bool {
	o, _ := jsonobj.ParseObject(params)
	id := o.Get("requestId")
	c.mu.Lock()
	cancel := c.asked[string(id)]
	c.mu.Unlock()
	if cancel != nil {
		cancel(errClientWithdrawn)
		return true
	}
	if p := c.lookup(id); p != nil && p.Method == MethodListen {
		c.settle(p, clientAnswer{err: errClientSubscription})
		return true
	}
	return false
}

// receiveRequest has a request of the server answered on a goroutine of its own.
func (c *Client) receiveRequest(from *clientCall, m message) {
	if _, http := c.link.(*httpLink); http && c.era == Modern {
		c.ignored.Add(1) // there is no way to answer it
		return
	}
	p, asked, parent := from, c.o.Asked, c.ctx
	if p == nil {
		p = c.only()
	}
	if p != nil && p.Asked != nil {
		asked, parent = p.Asked, p.askingContext()
	}
	ctx, cancel := context.WithCancelCause(parent)
	c.mu.Lock()
	full := len(c.asked) >= clientMaxAsked
	_, twice := c.asked[string(m.ID)]
	if !full && !twice {
		c.asked[string(m.ID)] = cancel
	}
	c.mu.Unlock()
	if twice || full || !c.spawn(func() {
		c.serve(ctx, m, asked)
		cancel(nil)
		c.mu.Lock()
		delete(c.asked, string(m.ID))
		c.mu.Unlock()
	}) {
		cancel(nil)
		c.ignored.Add(1)
	}
}

// serve answers a request of the server. One that the server has withdrawn gets no answer, nor does one that could not be answered before its call
// was left: another process may go on with what the server does, and then be asked again.
func (c *Client) serve(ctx context.Context, m message, asked func(context.Context, string, json.RawMessage) (json.RawMessage, *Error)) {
	answer := message{ID: m.ID}
	switch {
	case m.Method == MethodPing:
		answer.Result = json.RawMessage("{}")
	case asked == nil || c.era == Modern:
		answer.Error = Errorf(CodeMethodNotFound, "Method not found: %s", m.Method).JSON()
	default:
		result, err := asked(ctx, m.Method, m.Params)
		switch {
		case err != nil:
			answer.Error = err.JSON()
		case !jsonobj.Valid(result):
			answer.Error = Errorf(CodeInternal, "the client's answer is not valid").JSON()
		default:
			answer.Result = result
		}
	}
	if ctx.Err() != nil && (answer.Error != nil || errors.Is(context.Cause(ctx), errClientWithdrawn)) {
		return
	}
	_ = c.link.send(c.ctx, answer) // a server that does not take it will say so on the call
}
