package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/rawjson"
)

// firstOfListen is how long subscriptions/listen may stay without an event stream: what is wrong with it can still be told as the status.
const firstOfListen = 20 * time.Millisecond

// servePost serves the messages of a client.
func (x *HTTPHandler) servePost(w http.ResponseWriter, r *http.Request) {
	if !isJSON(r) {
		http.Error(w, "the Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	p := &post{HTTPHandler: x, w: w, r: r, first: x.opts.AfterFirst}
	if p.json, p.stream = accepts(r); !p.json && !p.stream {
		http.Error(w, "the header Accept allows neither application/json nor text/event-stream", http.StatusNotAcceptable)
		return
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, int64(x.opts.MaxMessage)), r.ContentLength)
	if err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			http.Error(w, fmt.Sprintf("the body is longer than %d bytes", tooLong.Limit), http.StatusRequestEntityTooLarge)
		} else {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
		}
		return
	}
	if !x.begin() { // not before the body is there: Close does not wait for what clients may never send
		http.Error(w, ErrShutdown.Error(), http.StatusServiceUnavailable)
		return
	}
	defer x.serving.Done()
	if messages, isBatch := splitBatch(body); isBatch {
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
	// first is how long there may be no answer before the response becomes an event stream.
	first time.Duration
	// opening is the session that the POST opens, if it does, batch says that it is an array of messages.
	opening *Session
	batch   bool
}

// refuse answers with an error by which HTTP says what is wrong, too.
func (p *post) refuse(status int, id json.RawMessage, e *Error) {
	writeJSON(p.w, status, errorMessage(id, e))
}

// serveOne serves the message that is the body.
func (p *post) serveOne(body []byte) {
	m, err := parseMessage(body)
	if err != nil {
		p.refuse(http.StatusBadRequest, nil, invalidMessage(body))
		return
	}
	stated := p.r.Header.Get(headerVersion)
	meta := serverMeta(m.params)
	claimed := meta.Text(MetaProtocolVersion)
	if era, known := EraOf(claimed); stated == Version2026_07_28 || claimed != "" && (!known || era == Modern) {
		p.serveModern(m, meta)
		return
	}
	if _, known := EraOf(stated); stated != "" && !known {
		p.refuse(http.StatusBadRequest, m.id, unsupportedVersion(stated))
		return
	}
	if m.method == MethodInitialize && m.isRequest() {
		p.initialize(m)
		return
	}
	s := p.sessionOf(p.w, p.r)
	if s == nil {
		return
	}
	defer p.release(s)
	if !m.isRequest() {
		s.receive(m)
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	p.serveLegacy(s.Session, []message{m}, nil)
}

// serveModern serves a message that stands by itself.
func (p *post) serveModern(m message, meta rawjson.Object) {
	if err := checkHeaders(p.r.Header, m, meta); err != nil {
		p.refuse(statusOf(err.Code), m.id, err)
		return
	}
	s := p.newSession("", Modern, Version2026_07_28)
	defer s.end(errEnded)
	if !m.isRequest() {
		if !m.isResponse() && m.method != NoteCancelled {
			s.receive(m)
		}
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	st := newStream(s, 1)
	st.silent = !p.stream
	connection := st.attach()
	defer st.detach(connection)
	q := &Request{Session: s, Method: m.method, Params: m.params, ID: m.id, Era: Modern, Version: Version2026_07_28, Header: p.r.Header, out: st}
	if err := s.start(context.WithoutCancel(p.r.Context()), q); err != nil {
		p.refuse(statusOf(err.Code), m.id, err)
		return
	}
	if m.method == MethodListen {
		p.first = min(p.first, firstOfListen)
	}
	if !p.answer(st, connection) {
		s.end(ErrCancelled) // a client that goes takes its request with it
	}
}

// initialize serves the request that begins a legacy session.
func (p *post) initialize(m message) {
	s := p.newSession(rand.Text(), Legacy, "")
	st := newStream(s, 1)
	st.silent = !p.stream
	connection := st.attach()
	defer st.detach(connection)
	q := &Request{Session: s, Method: m.method, Params: m.params, ID: m.id, Era: Legacy, Header: p.r.Header, out: st}
	if err := s.start(context.WithoutCancel(p.r.Context()), q); err != nil {
		s.end(errEnded)
		p.refuse(http.StatusBadRequest, m.id, err)
		return
	}
	p.opening = s
	if !p.answer(st, connection) || s.Version() == "" {
		s.end(errEnded) // the client does not know of it
	}
}

// serveBatch serves the messages of 2025-03-26 that are sent in an array. Newer clients that do it are served, too.
func (p *post) serveBatch(texts []json.RawMessage) {
	var requests []message
	var others []message
	var refused [][]byte
	version := p.r.Header.Get(headerVersion)
	for _, text := range texts {
		m, err := parseMessage(text)
		claimed := serverMeta(m.params).Text(MetaProtocolVersion)
		switch {
		case err != nil:
			refused = append(refused, errorMessage(nil, invalidMessage(text)))
		case version == Version2026_07_28 || claimed == Version2026_07_28:
			p.refuse(http.StatusBadRequest, m.id, Errorf(CodeInvalidRequest, "%s has no batches", Version2026_07_28))
			return
		case m.method == MethodInitialize:
			p.refuse(http.StatusBadRequest, m.id, Errorf(CodeInvalidRequest, "initialize must not be part of a batch"))
			return
		case m.isRequest():
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

// serveLegacy serves the requests of a POST in a session. refused are the answers to what were none.
func (p *post) serveLegacy(s *Session, requests []message, refused [][]byte) {
	st := newStream(s, len(requests)+len(refused))
	st.silent = !p.stream
	connection := st.attach()
	defer st.detach(connection)
	for _, text := range refused {
		_ = st.put(kindAnswer, text) // we are its connection
	}
	for _, m := range requests {
		q := &Request{
			Session: s, Method: m.method, Params: m.params, ID: m.id, Era: Legacy, Version: s.Version(), Header: p.r.Header, out: st,
		}
		if err := s.start(context.WithoutCancel(p.r.Context()), q); err != nil {
			_ = st.put(kindAnswer, errorMessage(m.id, err)) // we are its connection
		}
	}
	p.answer(st, connection) // what a lost connection leaves over waits in the session
}

// answer writes what comes on a stream to the response: as its body if there is nothing but answers and they come soon, else as events. It
// reports whether the client has got everything, as far as one can know.
func (p *post) answer(st *stream, connection int) bool {
	timer := time.NewTimer(p.first)
	defer timer.Stop()
	late := !p.json
	for {
		state := st.look(connection, 0)
		var answers [][]byte
		for _, e := range state.events {
			if e.kind != kindAnswer {
				late = true
				break
			}
			answers = append(answers, e.data)
		}
		if state.complete && len(answers) == len(state.events) {
			if status := p.status(answers); p.json || status != http.StatusOK {
				p.writeAnswers(status, answers)
				return true
			}
		}
		if late && p.stream {
			p.nameSession()
			return p.writeEvents(p.w, p.r, st, connection, 0)
		}
		select {
		case <-state.wake:
		case <-timer.C:
			late = true
		case <-p.r.Context().Done():
			return false
		}
	}
}

// nameSession tells the client the id of the session that it has opened.
func (p *post) nameSession() {
	if p.opening != nil {
		p.w.Header().Set(headerSession, p.opening.id)
	}
}

// status is the status of answers that are the whole response: Modern shows some errors in it.
func (p *post) status(answers [][]byte) int {
	if p.r.Header.Get(headerVersion) != Version2026_07_28 || len(answers) != 1 {
		return http.StatusOK
	}
	status := http.StatusOK
	rawjson.Members(answers[0], func(key, value []byte) {
		if string(key) == "error" {
			status = statusOf(ParseError(value).Code)
		}
	})
	return status
}

func (p *post) writeAnswers(status int, answers [][]byte) {
	if p.opening == nil || p.opening.Version() != "" { // else it is over
		p.nameSession()
	}
	if p.batch {
		writeJSON(p.w, status, joinBatch(answers))
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
