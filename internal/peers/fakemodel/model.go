// Package fakemodel is a model that does as it is told. It is an HTTP server on loopback that
// speaks OpenAI chat completions and responses, Anthropic messages and Gemini. It answers by
// directives in the user's messages. With it tests can drive real agents without a network, and
// inspect what the agents show their model.
//
//	[[CALL name-regexp {"json":"arguments"}]]   call the first tool whose name matches;
//	                                            several: one after another
//	[[CALL server.tool …]]                      the same for a tool of an MCP server,
//	                                            under whatever name the agent has given it
//	[[SAY text]]                                answer that, once the calls have their results
//	[[SLEEP ms]]                                wait before each answer
//	[[ERR status]]                              answer with an HTTP error
//
// The last text of the user that holds a directive counts, with all its directives. [Start] starts
// a [Server], and [Server.Requests] returns its requests. The package knows nothing of agents.
package fakemodel

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// The usage that every answer claims.
const (
	InputTokens  = 100
	OutputTokens = 10
)

// The wire formats.
const (
	OpenAIChat        = "openai-chat"
	OpenAIResponses   = "openai-responses"
	AnthropicMessages = "anthropic-messages"
	Gemini            = "gemini"
)

// maxBody is the greatest length of a request.
const maxBody = 64 << 20

// Options are settings of a server.
type Options struct {
	// Key, if not empty, is required of every request, wherever clients of the four formats put it.
	Key string
	// Script, if not nil, gives the directives for a text of the user that has none; empty for none.
	Script func(text string) string
}

// Request is one request that the server has got.
type Request struct {
	Time   time.Time
	Method string
	// Path is the path without the query. Header is that of the request.
	Path   string
	Header http.Header
	// API is the wire format, empty if the request is no call of a model. The fields below are for
	// calls only.
	API    string
	Model  string
	Stream bool
	// Body is the whole request.
	Body json.RawMessage
	// Messages are the history that the model was shown, Tools the names of the tools that it was
	// offered.
	Messages []Message
	Tools    []string
	// Status is the status of the answer, 0 if there was none yet. Aborted is set when the client did
	// not wait for it.
	Status  int
	Aborted bool
}

// Message is one entry of a history.
type Message struct {
	// Role is system, user, assistant or tool, or what the client calls it if that is none of
	// these.
	Role    string
	Text    string
	Calls   []Call
	Results []Result
}

// Call is a tool call of the model.
type Call struct {
	ID   string
	Name string
	Args json.RawMessage
}

// Result is the result of a call.
type Result struct {
	// ID is that of the call; Gemini's clients may leave it out.
	ID   string
	Text string
}

// Server is a running model. It is safe for concurrent use.
type Server struct {
	key      string
	script   func(string) string
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup

	mu       sync.Mutex
	requests []Request
	ids      int
	// changed is closed when requests change, and replaced.
	changed chan struct{}
}

// Start starts a server on 127.0.0.1. It must be closed.
func Start(o Options) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("scripted model: %w", err)
	}
	s := &Server{key: o.Key, script: o.Script, listener: listener, changed: make(chan struct{})}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.serving.Go(func() { _ = s.server.Serve(listener) }) // ends with Close
	return s, nil
}

// URL is the base URL, without a path. OpenAI's clients want /v1 after it.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Requests returns the requests that the server has got so far, in their order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Wait waits until the function accepts the requests. The error is that of the context.
func (s *Server) Wait(ctx context.Context, until func([]Request) bool) error {
	for {
		s.mu.Lock()
		requests, changed := slices.Clone(s.requests), s.changed
		s.mu.Unlock()
		if until(requests) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// Close ends the server and its answers.
func (s *Server) Close() error {
	err := s.server.Close()
	s.serving.Wait()
	return err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // the client has gone, or asks for too much
	}
	req := Request{Time: time.Now(), Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
	f := recognise(r)
	if f != nil {
		req.API, req.Body = f.api, body
		err = f.read(body, &req)
		if f.api == Gemini {
			req.Model, _, _ = strings.Cut(path.Base(r.URL.Path), ":")
			req.Stream = strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
		}
	}
	n := s.record(req)
	status := s.answer(w, r, f, req, err)
	s.settle(n, status, r.Context().Err() != nil)
}

// answer answers a request and returns the status, 0 if nobody was there to be answered.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f *format, req Request, wrong error) int {
	switch {
	case !s.admits(r):
		return writeError(w, http.StatusUnauthorized, "wrong or missing API key")
	case wrong != nil:
		return writeError(w, http.StatusBadRequest, "the request cannot be read: "+wrong.Error())
	case f == nil:
		return other(w, r)
	}
	d, err := parseScript(req.Messages, s.script)
	if err != nil {
		return writeError(w, http.StatusBadRequest, err.Error())
	}
	if d.sleep > 0 {
		timer := time.NewTimer(d.sleep)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return 0
		}
	}
	if d.status != 0 {
		return writeError(w, d.status, fmt.Sprintf("scripted error %d", d.status))
	}
	f.write(&reply{w: w, req: req, answer: d.next(req), id: s.nextID(), array: r.URL.Query().Get("alt") != "sse"})
	return http.StatusOK
}

// other answers requests that are no calls.
func other(w http.ResponseWriter, r *http.Request) int {
	switch p := r.URL.Path; {
	case strings.HasSuffix(p, "/models"):
		writeJSON(w, object{"object": "list", "data": []any{object{"id": "scripted", "object": "model"}}, "models": []any{}})
	case strings.HasSuffix(p, "/count_tokens"):
		writeJSON(w, object{"input_tokens": InputTokens})
	case strings.HasSuffix(p, ":countTokens"):
		writeJSON(w, object{"totalTokens": InputTokens})
	case strings.HasSuffix(p, "/api/hello"):
		writeJSON(w, object{})
	default:
		return writeError(w, http.StatusNotFound, "there is nothing at "+p)
	}
	return http.StatusOK
}

// admits checks the key.
func (s *Server) admits(r *http.Request) bool {
	if s.key == "" {
		return true
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return slices.ContainsFunc([]string{token, r.Header.Get("X-Api-Key"),
		r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key")},
		func(got string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(s.key)) == 1 })
}

func (s *Server) record(r Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	s.wake()
	return len(s.requests) - 1
}

func (s *Server) settle(n, status int, aborted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[n].Status, s.requests[n].Aborted = status, aborted
	s.wake()
}

// wake wakes those who wait. The caller holds the lock.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) nextID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return s.ids
}
