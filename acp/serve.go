package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// maxRequests is how many requests of the agent are served at once. Further requests are refused
// and not queued, so that the message that would end the others can still come.
const maxRequests = 256

// server answers the agent's requests.
type server struct {
	c       *Conn // ends the requests' contexts, waits for their goroutines, and writes the answers
	handler Handler
	opts    Options

	mu       sync.Mutex
	requests map[string]*request // by the agent's ids, which may equal ours
	serving  int                 // how many requests have a handler at work
	stopped  map[string]bool     // the sessions that Cancel was called for since their last prompt
}

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

// receive serves a request on a goroutine of its own, so that updates go on while somebody decides.
func (s *server) receive(m jsonrpc.Message) {
	if s.opts.Requested != nil {
		s.opts.Requested()
	}
	req := &request{id: m.ID, method: m.Method}
	ctx, cancel := context.WithCancel(s.c.ctx)
	req.cancel = cancel
	if m.Method == methodPermission {
		req.sessionID = sessionIDOf(m.Params)
	}
	s.mu.Lock()
	full := s.serving >= maxRequests
	stopped := s.stopped[req.sessionID]
	if !full && !stopped {
		s.serving++
		s.requests[string(m.ID)] = req
	}
	s.mu.Unlock()

	switch {
	case full:
		cancel()
		<-s.answer(req, nil, &rpcError{CodeInternal, "too many requests are open"})
	case stopped:
		// It was sent before the agent read session/cancel.
		<-s.withdraw(req)
	default:
		s.c.finished.Go(func() {
			result, err := s.serve(ctx, m)
			<-s.answer(req, result, err)
			cancel()
			s.mu.Lock()
			s.serving--
			s.mu.Unlock()
		})
	}
}

// serve returns the answer to a request.
func (s *server) serve(ctx context.Context, m jsonrpc.Message) (any, error) {
	if id := sessionIDOf(m.Params); id != "" && s.opts.Serves != nil && !s.opts.Serves(id) {
		return nil, &rpcError{CodeResourceMissing, fmt.Sprintf("there is no session %.100q", id)}
	}
	switch {
	case m.Method == methodPermission:
		return s.servePermission(ctx, m.Params)
	case m.Method == "elicitation/create" && s.opts.Elicit != nil:
		return s.serveElicitation(ctx, m.Params)
	case s.opts.Files != nil && m.Method == "fs/read_text_file":
		return serveWith(ctx, m.Params, s.opts.Files.read)
	case s.opts.Files != nil && m.Method == "fs/write_text_file" && !s.opts.Files.readOnly:
		return serveWith(ctx, m.Params, s.opts.Files.write)
	}
	if t := s.opts.Terminals; t != nil {
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
	// Never an empty success: an agent would believe that its file was written (benchflow issue
	// 365).
	return nil, &rpcError{CodeMethodNotFound, "Method not found: " + m.Method}
}

// serveWith decodes the parameters of a request.
func serveWith[P any](
	ctx context.Context, params json.RawMessage, f func(context.Context, P) (any, error),
) (any, error) {
	var p P
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, invalidParams("invalid params: " + err.Error())
	}
	return f(ctx, p)
}

// receiveCancel answers a request that the agent withdraws.
func (s *server) receiveCancel(params json.RawMessage) {
	var id string
	jsonobj.Members(params, func(key, value []byte) {
		if string(key) == "requestId" {
			id = string(value)
		}
	})
	s.mu.Lock()
	req := s.requests[id]
	s.mu.Unlock()
	if req != nil {
		s.withdraw(req)
	}
}

// withdraw answers a request as cancelled, without waiting for its handler.
func (s *server) withdraw(req *request) <-chan struct{} {
	defer req.cancel()
	if req.method == methodPermission {
		return s.answer(req, PermissionOutcome{}.wire(), nil)
	}
	return s.answer(req, nil, &rpcError{CodeCancelled, "cancelled"})
}

// withdrawPermissions answers the permission requests of a session as cancelled, those that are
// still to come before the next prompt included.
func (s *server) withdrawPermissions(sessionID string) {
	var pending []*request
	s.mu.Lock()
	s.stopped[sessionID] = true
	for _, req := range s.requests {
		if req.sessionID == sessionID && req.method == methodPermission {
			pending = append(pending, req)
		}
	}
	s.mu.Unlock()
	for _, req := range pending {
		s.withdraw(req)
	}
}

// resume lets the permission requests of a session through again: it is prompted once more.
func (s *server) resume(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stopped, sessionID)
}

// answer answers a request, if it is not answered yet. The channel is closed when the answer is
// written.
func (s *server) answer(req *request, result any, err error) <-chan struct{} {
	written := make(chan struct{})
	if req.answered.Swap(true) {
		close(written)
		return written
	}
	s.mu.Lock()
	if s.requests[string(req.id)] == req {
		delete(s.requests, string(req.id))
	}
	s.mu.Unlock()

	var rpcErr *rpcError
	if err != nil && !errors.As(err, &rpcErr) {
		rpcErr = &rpcError{CodeInternal, err.Error()}
	}
	m := jsonrpc.Message{ID: req.id}
	if rpcErr == nil {
		m.Result, err = marshal(result)
		if err != nil { // a handler returned raw JSON that is not valid
			rpcErr = &rpcError{CodeInternal, "the client's answer is not valid"}
		}
	}
	if rpcErr != nil {
		m.Error, _ = marshal(rpcErr) // a number and a text always marshal
	}
	s.c.put(m, func(error) { close(written) })
	return written
}
