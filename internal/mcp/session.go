package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Session is a client as far as the protocol remembers it: a legacy HTTP session, a stdio
// connection, or one modern HTTP request. Its methods are safe for concurrent use.
type Session struct {
	id      string
	handler Handler
	// out takes messages that belong to no request; nil if there is no place for them.
	out messageSink
	// opened is called when initialize has succeeded and before it is answered. ended is called when
	// the session ends; it makes sure that close is called.
	opened, ended func(s *Session)

	ctx     context.Context // ends with the session; the cause says why
	cancel  context.CancelCauseFunc
	serving sync.WaitGroup // the requests that have begun
	gone    chan struct{}  // closed when close has returned
	next    chan *Request  // a goroutine that has served a request takes the next one from it
	waiting atomic.Bool    // set while there is such a goroutine
	// notifying serializes notifications.
	notifying sync.Mutex

	mu      sync.Mutex
	over    bool
	era     Era
	version string
	value   any
	// starting is closed when the first initialize has been answered; nil before it has come.
	starting chan struct{}
	running  map[string]*Request // by the client's ids
	asked    map[string]chan message
	lastID   int64
	streams  sessionStreams // of HTTP
}

// The causes of the end of a session.
var (
	errEnded = errors.New("the MCP session has ended")
	// ErrShutdown is wrapped by [Session.Err] if the server has been closed or its context has ended.
	// A client may go on with the session in another process, if that restores it.
	ErrShutdown = errors.New("the MCP server is shutting down")
)

// maxRunning is how many requests of a session are served at once.
const maxRunning = 1024

func newSession(ctx context.Context, id string, era Era, version string, h Handler) *Session {
	s := &Session{
		id: id, era: era, version: version, handler: h,
		gone: make(chan struct{}), next: make(chan *Request),
		running: map[string]*Request{}, asked: map[string]chan message{},
		// Ids begin anywhere, so that a late answer to a question of an earlier process answers none of
		// ours.
		lastID: rand.Int64N(1 << 48),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// ID is the id of a legacy HTTP session, or one that is made for a connection over stdio. The
// session of a modern HTTP request has none.
func (s *Session) ID() string { return s.id }

// Era is the era of the client. On stdio it is that of its first request, unless it has sent
// initialize since then.
func (s *Session) Era() Era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

// Version is the protocol version, empty before initialize was answered.
func (s *Session) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetValue keeps a value for the handler.
func (s *Session) SetValue(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = v
}

// Value returns the last value given to SetValue.
func (s *Session) Value() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// Notify sends a notification that belongs to no request: on the connection, or on the stream that
// a legacy HTTP client opens for them. Until it opens one, notifications wait, and the oldest are
// dropped when there are too many. It fails when the session has ended, in a session of a modern
// HTTP request, and if the client does not read.
func (s *Session) Notify(method string, params json.RawMessage) error {
	m := message{Method: method, Params: params}
	return s.put(kindNote, &m)
}

// Ask sends the client a request that belongs to none of its own, and waits for the answer. The
// error is an [*Error] if that is the answer. Clients of Modern cannot be asked.
func (s *Session) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if s.Era() == Modern {
		return nil, errModern
	}
	return s.ask(ctx, s.put, method, params)
}

// Close ends the session as if the client had. It does not wait for requests, so that one of them
// may call it.
func (s *Session) Close() { s.end(errEnded) }

// Err says why the session has ended; it is nil before that. It wraps [ErrShutdown] if the client
// had no part in it.
func (s *Session) Err() error { return context.Cause(s.ctx) }

func (s *Session) put(k messageKind, m *message) error {
	switch {
	case s.ctx.Err() != nil:
		return s.Err()
	case s.out == nil:
		return errNoStream
	}
	return s.out.put(k, m)
}

// ask sends a request by put and waits for the answer.
func (s *Session) ask(ctx context.Context, put func(messageKind, *message) error,
	method string, params json.RawMessage) (json.RawMessage, error) {
	answers := make(chan message, 1)
	s.mu.Lock()
	s.lastID++
	id := strconv.FormatInt(s.lastID, 10)
	s.asked[id] = answers
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asked, id)
		s.mu.Unlock()
	}()
	m := message{ID: json.RawMessage(id), Method: method, Params: params}
	if err := put(kindAsk, &m); err != nil {
		return nil, fmt.Errorf("asking the client for %s: %w", method, err)
	}
	select {
	case a := <-answers:
		if a.Error != nil {
			return nil, ParseError(a.Error)
		}
		return a.Result, nil
	case <-s.ctx.Done():
		return nil, fmt.Errorf("asking the client for %s: %w", method, s.Err())
	case <-ctx.Done():
		cancelled := message{Method: NoteCancelled, Params: jsonobj.Object{{Key: "requestId", Value: m.ID}}.JSON()}
		_ = put(kindNote, &cancelled) // a client that cannot be told does not answer either
		return nil, fmt.Errorf("asking the client for %s: %w", method, context.Cause(ctx))
	}
}

// receive acts on a message that is no request.
func (s *Session) receive(m message) {
	switch {
	case m.IsResponse():
		s.mu.Lock()
		answers := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if answers != nil { // otherwise it came too late, or nobody has asked
			answers <- m
		}
	case m.Method == NoteCancelled:
		o, _ := jsonobj.ParseObject(m.Params)
		s.mu.Lock()
		r := s.running[string(o.Get("requestId"))]
		s.mu.Unlock()
		if r != nil { // otherwise it has been answered: some clients always cancel
			r.Cancel(ErrCancelled)
		}
	default:
		s.notifying.Lock()
		defer s.notifying.Unlock()
		if s.ctx.Err() == nil {
			s.handler.Notified(s, m.Method, m.Params)
		}
	}
}

// start has a request served on another goroutine. It returns an error without sending it.
func (s *Session) start(r *Request) *Error {
	if err := s.begin(r); err != nil {
		return err
	}
	select {
	case s.next <- r:
	default:
		go s.answerAll(r)
	}
	return nil
}

// answerAll answers a request, and then waits for another. A goroutine that has served before has
// the stack for it, and growing one takes longer than a small call. At most one goroutine waits.
func (s *Session) answerAll(r *Request) {
	for {
		s.answer(r)
		if !s.waiting.CompareAndSwap(false, true) {
			return
		}
		select {
		case r = <-s.next:
			s.waiting.Store(false)
		case <-s.ctx.Done():
			return
		}
	}
}

// answer serves a request and answers it.
func (s *Session) answer(r *Request) {
	defer s.serving.Done()
	answer := s.serve(r.ctx, r)
	wanted := r.finish()
	s.mu.Lock()
	delete(s.running, string(r.ID))
	if r.Method == MethodInitialize && s.starting != nil {
		close(s.starting)
		s.starting = nil
	}
	s.mu.Unlock()
	if !wanted {
		_ = r.out.put(kindAnswer, nil)
		return
	}
	_ = r.out.put(kindAnswer, &answer) // a client that has gone needs no answer
}

// begin enters a request, which must be answered then. It returns an error without sending it.
func (s *Session) begin(r *Request) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return Errorf(CodeInternal, "%v", errEnded)
	case !validID(r.ID):
		return Errorf(CodeInvalidRequest, "the id of a request must be a string or a number")
	case s.running[string(r.ID)] != nil:
		return Errorf(CodeInvalidRequest, "another request with the id %s is being served", r.ID)
	case len(s.running) >= maxRunning:
		return Errorf(CodeInternal, "too many requests are open")
	}
	if r.Method == MethodInitialize && s.starting == nil {
		s.starting = make(chan struct{})
	}
	r.ctx, r.cancel = context.WithCancelCause(requestContext{s.ctx, r.values})
	s.running[string(r.ID)] = r
	s.serving.Add(1)
	return nil
}

// serve answers a request, either by itself or with the handler.
func (s *Session) serve(ctx context.Context, r *Request) message {
	switch {
	case r.Era == Modern, r.Method == MethodInitialize:
		return r.run(ctx, s.handler)
	case r.Method == MethodPing:
		return message{ID: r.ID, Result: json.RawMessage("{}")}
	}
	s.mu.Lock()
	starting := s.starting
	s.mu.Unlock()
	if starting != nil { // a client that does not wait for the answer to initialize is served after it
		select {
		case <-starting:
		case <-ctx.Done():
		}
	}
	if r.Version = s.Version(); r.Version == "" {
		return message{ID: r.ID, Error: Errorf(CodeInvalidRequest, "%s before initialize has been answered", r.Method).JSON()}
	}
	return r.run(ctx, s.handler)
}

// initialized records the version that was agreed on.
func (s *Session) initialized(version string) {
	s.mu.Lock()
	s.era, s.version = Legacy, version
	s.mu.Unlock()
	if s.opened != nil {
		s.opened(s)
	}
}

// end ends the session, once.
func (s *Session) end(cause error) {
	s.mu.Lock()
	over := s.over
	s.over = true
	running := slices.Collect(maps.Values(s.running))
	s.mu.Unlock()
	if !over {
		s.cancel(cause)
		for _, r := range running {
			r.Cancel(s.Err())
		}
		if s.ended != nil {
			s.ended(s)
		}
	}
}

// close waits for the goroutines of a session that has ended, and tells the handler.
func (s *Session) close() {
	defer close(s.gone)
	s.serving.Wait()
	s.notifying.Lock()
	defer s.notifying.Unlock()
	s.handler.Closed(s)
}
