package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// streamListenAfter is how long subscriptions/listen may stay without an event stream. Until then
// an error can still be sent as the status.
const streamListenAfter = 20 * time.Millisecond

// servePost serves the messages of a client.
func (x *HTTPHandler) servePost(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r) {
		http.Error(w, "the Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	p := &post{HTTPHandler: x, w: w, r: r, streamAfter: x.opts.StreamAfter}
	if p.json, p.stream = accepts(r); !p.json && !p.stream {
		http.Error(w, "the header Accept allows neither application/json nor text/event-stream", http.StatusNotAcceptable)
		return
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, int64(x.opts.MaxMessage)), r.ContentLength)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		http.Error(w, fmt.Sprintf("the body is longer than %d bytes", tooLong.Limit), http.StatusRequestEntityTooLarge)
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf("the body did not come within %v", x.bodyTimeout), http.StatusRequestTimeout)
		return
	case err != nil:
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if !x.begin() { // only once the body is there: Close does not wait for what clients may never send
		http.Error(w, ErrShutdown.Error(), http.StatusServiceUnavailable)
		return
	}
	defer x.serving.Done()
	if messages, isBatch := jsonrpc.SplitBatch(body); isBatch {
		p.serveBatch(messages)
		return
	}
	p.serveOne(body)
}

// post is one POST.
type post struct {
	*HTTPHandler
	w http.ResponseWriter
	r *http.Request
	// json and stream say which answers the client accepts.
	json, stream bool
	// streamAfter is how long the response may wait for an answer before it becomes an event stream.
	streamAfter time.Duration
	// opening is the session that the POST opens, if it does. batch says that it is an array of
	// messages.
	opening *Session
	batch   bool
}

// refuse answers with an error and with the HTTP status for it.
func (p *post) refuse(status int, id json.RawMessage, e *Error) {
	writeJSON(p.w, status, errorMessage(id, e).Encode())
}

// serveOne serves the message that is the body.
func (p *post) serveOne(body []byte) {
	m, err := jsonrpc.Parse(body)
	if err != nil {
		p.refuse(http.StatusBadRequest, nil, invalidMessage(body))
		return
	}
	stated := p.r.Header.Get(headerVersion)
	meta := serverMeta(m.Params)
	claimed := meta.Text(MetaProtocolVersion)
	if era, known := EraOf(claimed); stated == Version2026_07_28 || claimed != "" && (!known || era == Modern) {
		p.serveModern(m, meta)
		return
	}
	if _, known := EraOf(stated); stated != "" && !known {
		p.refuse(http.StatusBadRequest, m.ID, unsupportedVersion(stated))
		return
	}
	if m.Method == MethodInitialize && m.IsRequest() {
		p.initialize(m)
		return
	}
	s := p.sessionOf(p.w, p.r)
	if s == nil {
		return
	}
	defer p.release(s)
	if !m.IsRequest() {
		s.receive(m)
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	p.serveLegacy(s.Session, []message{m}, nil)
}

// serveModern serves a message that stands by itself.
func (p *post) serveModern(m message, meta jsonobj.Object) {
	if err := checkHeaders(p.r.Header, m, meta); err != nil {
		p.refuse(statusOf(err.Code), m.ID, err)
		return
	}
	s := newSession(p.ctx, "", Modern, Version2026_07_28, p.handler)
	defer s.end(errEnded)
	if !m.IsRequest() {
		if !m.IsResponse() && m.Method != NoteCancelled {
			s.receive(m)
		}
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	q := &Request{Session: s, Method: m.Method, Params: m.Params, ID: m.ID, Era: Modern,
		Version: Version2026_07_28, Header: p.r.Header, values: p.r.Context(), meta: meta}
	if err := s.begin(q); err != nil {
		p.refuse(statusOf(err.Code), m.ID, err)
		return
	}
	st := p.newStream(s, 1)
	q.out = st
	if m.Method == MethodListen {
		p.streamAfter = min(p.streamAfter, streamListenAfter)
	}
	// A client that goes takes its request with it.
	p.respond(st, func() { s.end(ErrCancelled) }, func() { s.answer(q) })
}

// initialize serves the request that begins a legacy session.
func (p *post) initialize(m message) {
	s := p.newSession(rand.Text())
	q := &Request{Session: s, Method: m.Method, Params: m.Params, ID: m.ID,
		Era: Legacy, Header: p.r.Header, values: p.r.Context(), meta: serverMeta(m.Params)}
	if err := s.begin(q); err != nil {
		s.end(errEnded)
		p.refuse(http.StatusBadRequest, m.ID, err)
		return
	}
	st := p.newStream(s, 1)
	q.out = st
	p.opening = s
	unknown := func() { s.end(errEnded) } // to its client
	if !p.respond(st, unknown, func() { s.answer(q) }) || s.Version() == "" {
		unknown()
	}
}

// serveBatch serves the messages of 2025-03-26 that are sent in an array. Newer clients that do it
// are served, too.
func (p *post) serveBatch(texts []json.RawMessage) {
	var requests []message
	var others []message
	var refused []*message
	version := p.r.Header.Get(headerVersion)
	for _, text := range texts {
		m, err := jsonrpc.Parse(text)
		claimed := serverMeta(m.Params).Text(MetaProtocolVersion)
		switch {
		case err != nil:
			refused = append(refused, errorMessage(nil, invalidMessage(text)))
		case version == Version2026_07_28 || claimed == Version2026_07_28:
			p.refuse(http.StatusBadRequest, m.ID, Errorf(CodeInvalidRequest, "%s has no batches", Version2026_07_28))
			return
		case m.Method == MethodInitialize:
			p.refuse(http.StatusBadRequest, m.ID, Errorf(CodeInvalidRequest, "initialize must not be part of a batch"))
			return
		case m.IsRequest():
			requests = append(requests, m)
		default:
			others = append(others, m)
		}
	}
	if len(texts) == 0 {
		p.refuse(http.StatusBadRequest, nil, Errorf(CodeInvalidRequest, "an empty batch"))
		return
	}
	s := p.sessionOf(p.w, p.r)
	if s == nil {
		return
	}
	defer p.release(s)
	for _, m := range others {
		s.receive(m)
	}
	if len(requests)+len(refused) == 0 {
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	p.batch = true
	p.serveLegacy(s.Session, requests, refused)
}

// serveLegacy serves the requests of a POST in a session. refused are the answers to messages that
// were none.
func (p *post) serveLegacy(s *Session, requests []message, refused []*message) {
	st := p.newStream(s, len(requests)+len(refused))
	for _, m := range refused {
		_ = st.put(kindAnswer, m) // we are its connection
	}
	// Answers that a lost connection leaves over wait in the session.
	p.respond(st, func() {}, func() {
		var others sync.WaitGroup
		defer others.Wait()
		for i, m := range requests {
			q := &Request{
				Session: s, Method: m.Method, Params: m.Params, ID: m.ID, Era: Legacy, Version: s.Version(),
				Header: p.r.Header, values: p.r.Context(), meta: serverMeta(m.Params), out: st,
			}
			err := s.begin(q)
			switch {
			case err != nil:
				_ = st.put(kindAnswer, errorMessage(m.ID, err)) // a client that has gone needs no answer
			case i == len(requests)-1:
				s.answer(q)
			default:
				others.Go(func() { s.answer(q) })
			}
		}
	})
}

// newStream is the stream for the answers to a POST.
func (p *post) newStream(s *Session, answers int) *stream {
	st := newStream(s, answers)
	st.silent = !p.stream
	return st
}

// respond has serve answer the requests of a POST, and writes the messages on their stream to the
// response. They become its body if there are only answers and they come soon, and events
// otherwise. It calls gone if the client goes before, and reports whether the client has got
// everything, as far as one can know.
func (p *post) respond(st *stream, gone, serve func()) bool {
	connection := st.attach()
	defer st.detach(connection)
	left := make(chan struct{})
	clientGone := func() {
		defer close(left)
		st.detach(connection)
		gone()
		p.hangUp()
	}
	stay := context.AfterFunc(p.r.Context(), clientGone)
	events := &postEvents{write: func() bool {
		if !stay() {
			<-left
			return false
		}
		p.nameSession()
		complete := p.writeEvents(p.w, p.r, st, connection, 0)
		if !complete {
			clientGone()
		}
		return complete
	}}
	if p.stream {
		st.noted = events.begin
		if p.json {
			defer time.AfterFunc(p.streamAfter, events.begin).Stop()
		} else {
			events.begin()
		}
	}
	serve()
	if complete, begun := events.end(); begun {
		return complete
	}
	if !stay() {
		<-left
		return false
	}
	p.writeAnswers(st.answers())
	return true
}

// hangUp closes the connection of a client that has gone, or goes on with its stream on another
// connection, because the request may take long to end.
func (p *post) hangUp() {
	conn, _, err := http.NewResponseController(p.w).Hijack()
	if err == nil {
		_ = conn.Close()
	} // otherwise it is no connection of its own, as in HTTP/2
}

// postEvents writes the response to a POST as events, once it becomes an event stream.
type postEvents struct {
	write func() (complete bool)

	mu      sync.Mutex
	over    bool
	written chan bool // the result of writeEvents; nil before it has begun
}

// begin has the events written, unless that has begun or the response has become something else.
func (e *postEvents) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.written != nil {
		return
	}
	e.written = make(chan bool, 1)
	go func() { e.written <- e.write() }()
}

// end waits for the writer if it has begun. Nothing can begin after that.
func (e *postEvents) end() (complete, begun bool) {
	e.mu.Lock()
	e.over = true
	written := e.written
	e.mu.Unlock()
	if written == nil {
		return false, false
	}
	return <-written, true
}

// nameSession tells the client the id of the session that it has opened.
func (p *post) nameSession() {
	if p.opening != nil {
		p.w.Header().Set(headerSession, p.opening.id)
	}
}

// status is the status of answers that are the whole response. Modern shows some errors in it.
func (p *post) status(answers [][]byte) int {
	if p.r.Header.Get(headerVersion) != Version2026_07_28 || len(answers) != 1 {
		return http.StatusOK
	}
	status := http.StatusOK
	jsonobj.Members(answers[0], func(key, value []byte) {
		if string(key) == "error" {
			status = statusOf(ParseError(value).Code)
		}
	})
	return status
}

// writeAnswers writes answers as the body of the response.
func (p *post) writeAnswers(answers [][]byte) {
	status := p.status(answers)
	if p.opening == nil || p.opening.Version() != "" { // otherwise it is over
		p.nameSession()
	}
	if p.batch {
		writeJSON(p.w, status, jsonrpc.JoinBatch(answers))
		return
	}
	writeJSON(p.w, status, answers[0])
}

// statusOf is the HTTP status by which Modern shows an error.
func statusOf(code int64) int {
	switch code {
	case CodeMethodNotFound:
		return http.StatusNotFound
	case CodeInvalidParams, CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
