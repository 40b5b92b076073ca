package acp

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// maxRequests is how many requests of the agent are served at once. One that exceeds it is refused, and not queued, so
// that what would end the others can still come.
const maxRequests = 256

// request is a request of the agent that is not answered yet.
type request struct {
	id        json.RawMessage
	method    string
	sessionID string // of a permission request
	cancel    context.CancelFunc
	answered  atomic.Bool
}

// rpcError is an error that we answer to the agent, whose model may read the message.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

func invalidParams(message string) error { return &rpcError{CodeInvalidParams, message} }

// receiveRequest serves a request on a goroutine of its own, so that updates go on while somebody decides.
func (c *Conn) receiveRequest(m jsonrpc.Message) {
	req := &request{id: m.ID, method: m.Method}
	ctx, cancel := context.WithCancel(c.ctx)
	req.cancel = cancel
	if m.Method == methodPermission {
		req.sessionID = sessionIDOf(m.Params)
	}
	c.mu.Lock()
	full := c.serving >= maxRequests
	stopped := c.stopped[req.sessionID]
	if !full && !stopped {
		c.serving++
		c.requests[string(m.ID)] = req
	}
	c.mu.Unlock()

	switch {
	case full:
		cancel()
		<-c.answer(req, nil, &rpcError{CodeInternal, "too many requests are open"})
	case stopped:
		// It was sent before the agent read session/cancel.
		<-c.withdraw(req)
	default:
		c.finished.Go(func() {
			result, err := c.serve(ctx, m)
			<-c.answer(req, result, err)
			cancel()
			c.mu.Lock()
			c.serving--
			c.mu.Unlock()
		})
	}
}

// serve returns what is answered to a request.
func (c *Conn) serve(ctx context.Context, m jsonrpc.Message) (any, error) {
	switch {
	case m.Method == methodPermission:
		return c.servePermission(ctx, m.Params)
	case m.Method == "elicitation/create" && c.opts.Elicit != nil:
		return c.serveElicitation(ctx, m.Params)
	case c.opts.Files != nil && m.Method == "fs/read_text_file":
		return serveWith(ctx, m.Params, c.opts.Files.read)
	case c.opts.Files != nil && m.Method == "fs/write_text_file" && !c.opts.Files.readOnly:
		return serveWith(ctx, m.Params, c.opts.Files.write)
	}
	if t := c.opts.Terminals; t != nil {
		switch m.Method {
		case "terminal/create":
			return serveWith(ctx, m.Params, t.create)
		case "terminal/output":
			return serveWith(ctx, m.Params, t.output)
		case "terminal/wait_for_exit":
			return serveWith(ctx, m.Params, t.waitForExit)
		case "terminal/kill":
			return serveWith(ctx, m.Params, t.kill)
		case "terminal/release":
			return serveWith(ctx, m.Params, t.release)
		}
	}
	// Never an empty success: an agent would believe that its file was written (benchflow issue 365).
	return nil, &rpcError{CodeMethodNotFound, "Method not found: " + m.Method}
}

// serveWith decodes the parameters of a request.
func serveWith[P any](ctx context.Context, params json.RawMessage, f func(context.Context, P) (any, error)) (any, error) {
	var p P
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, invalidParams("invalid params: " + err.Error())
	}
	return f(ctx, p)
}

// receiveCancel answers a request that the agent withdraws.
func (c *Conn) receiveCancel(params json.RawMessage) {
	var id string
	jsonobj.Members(params, func(key, value []byte) {
		if string(key) == "requestId" {
			id = string(value)
		}
	})
	c.mu.Lock()
	req := c.requests[id]
	c.mu.Unlock()
	if req != nil {
		c.withdraw(req)
	}
}

// withdraw answers a request as cancelled, without waiting for its handler.
func (c *Conn) withdraw(req *request) <-chan struct{} {
	defer req.cancel()
	if req.method == methodPermission {
		return c.answer(req, PermissionOutcome{}.wire(), nil)
	}
	return c.answer(req, nil, &rpcError{CodeCancelled, "cancelled"})
}

// withdrawPermissions answers the permission requests of a session as cancelled, those that are still to come before the
// next prompt included.
func (c *Conn) withdrawPermissions(sessionID string) {
	var pending []*request
	c.mu.Lock()
	c.stopped[sessionID] = true
	for _, req := range c.requests {
		if req.sessionID == sessionID && req.method == methodPermission {
			pending = append(pending, req)
		}
	}
	c.mu.Unlock()
	for _, req := range pending {
		c.withdraw(req)
	}
}

// answer answers a request, if it is not answered yet. The channel is closed when the answer is written.
func (c *Conn) answer(req *request, result any, err error) <-chan struct{} {
	written := make(chan struct{})
	if req.answered.Swap(true) {
		close(written)
		return written
	}
	c.mu.Lock()
	if c.requests[string(req.id)] == req {
		delete(c.requests, string(req.id))
	}
	c.mu.Unlock()

	var rpcErr *rpcError
	if err != nil && !errors.As(err, &rpcErr) {
		rpcErr = &rpcError{CodeInternal, err.Error()}
	}
	m := jsonrpc.Message{ID: req.id}
	if rpcErr == nil {
		m.Result, err = marshal(result)
		if err != nil { // a handler returned raw JSON that is none
			rpcErr = &rpcError{CodeInternal, "the client's answer is not valid"}
		}
	}
	if rpcErr != nil {
		m.Error, _ = marshal(rpcErr) // a number and a text always marshal
	}
	c.put(m, func(error) { close(written) })
	return written
}
