// Package fakejudge is a model that judges by a rule. It is an HTTP server on loopback that speaks
// OpenAI's chat completions, responses and embeddings, Anthropic's messages, and the batches of both, as far
// as judges use them. It calls the tool that it is forced to call, with the rule's arguments, and
// can fail in every way in which a provider fails. It knows nothing of evaluators.
package fakejudge

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// The usage that every answer claims.
const (
	InputTokens  = 200
	OutputTokens = 20
)

// Key is the key that the server wants.
const Key = "fake-judge-key-0123456789"

// Request is one request that the server has got.
type Request struct {
	Header http.Header
	// API is chat, responses, messages or embeddings.
	API   string
	Model string
	// System and Prompt are the instructions and the question for the model. Tool is the name of the
	// tool that it must call, empty if the answer is to be JSON.
	System, Prompt string
	Tool           string
	// Body is the whole request.
	Body map[string]any
	// Batch is the batch that contained it, empty if it was made by itself.
	Batch string
}

// Reply is an answer of the server. The zero value is a call of the tool without arguments.
type Reply struct {
	// Arguments are the arguments of the tool. Those of type []float64 are an embedding; any other counts words.
	Arguments any
	// Tool, if not empty, is the tool that is called in place of the one that must be.
	Tool string
	// Text, if not empty, is the answer instead of a call of the tool.
	Text string
	// Refusal, if not empty, is the reason why the model does not answer. Truncated says that the
	// answer was cut off.
	Refusal   string
	Truncated bool
	// Status, if not 0, is an HTTP error with the message Error. RetryAfter is its header.
	Status     int
	Error      string
	RetryAfter string
	// Raw, if not empty, is the whole answer, also of an error.
	Raw string
	// Hang never answers: the server waits until the client has gone, and in a batch the request
	// expires.
	Hang bool
}

// Score is a call of UiPath's tool.
func Score(score any, justification string) Reply {
	return Reply{Arguments: map[string]any{"score": score, "justification": justification}}
}

// Server is a running provider. It is safe for concurrent use.
type Server struct {
	rule     func(Request) Reply
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	batches  *batches

	mu       sync.Mutex
	requests []Request
	bodies   [][]byte
	busy     int
	mostBusy int
}

// Start starts a server on 127.0.0.1 that answers by a rule. It must be closed.
func Start(rule func(Request) Reply) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("judging model: %w", err)
	}
	s := &Server{rule: rule, listener: listener}
	s.batches = &batches{s: s, files: map[string][]byte{}}
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve)} //nolint:gosec // for tests, on loopback
	s.serving.Go(func() { _ = s.server.Serve(listener) })       // it ends with Close
	return s, nil
}

// URL is the address of the server, without a path.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Environ are the variables with which evalrun finds the server for every model.
func (s *Server) Environ() map[string]string {
	return map[string]string{"OPENAI_BASE_URL": s.URL() + "/v1",
		"OPENAI_API_KEY": Key, "ANTHROPIC_BASE_URL": s.URL(), "ANTHROPIC_API_KEY": Key}
}

// Close ends the server and everything that it still serves.
func (s *Server) Close() error {
	err := s.server.Close()
	s.serving.Wait()
	return err
}

// Requests returns the requests that the server has got so far, in their order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Bodies returns the bodies of all HTTP requests that the server has got, the files of batches
// among them.
func (s *Server) Bodies() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]byte(nil), s.bodies...)
}

// MostAtOnce is the greatest number of requests that were under way at once.
func (s *Server) MostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mostBusy
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	const mostBody = 64 << 20
	body, err := io.ReadAll(io.LimitReader(r.Body, mostBody))
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	if r.Header.Get("x-api-key") != Key && r.Header.Get("Authorization") != "Bearer "+Key {
		fail(w, r, http.StatusUnauthorized, "the key is wrong")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err == nil && s.batches.serve(w, r, body) {
		return
	}
	q := Request{Header: r.Header}
	if err == nil {
		err = json.Unmarshal(body, &q.Body)
	}
	format, ok := formats[r.URL.Path]
	switch {
	case r.Method != http.MethodPost || !ok:
		fail(w, r, http.StatusNotFound, "there is nothing at "+r.URL.Path)
		return
	case err != nil:
		fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	q.API, q.Model = format.name, text(q.Body["model"])
	format.read(&q)
	n := s.noteRequest(q)
	s.mu.Lock()
	s.busy++
	s.mostBusy = max(s.mostBusy, s.busy)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}()
	reply := s.rule(q)
	w.Header().Set(requestID(r), fmt.Sprintf("req_%d", n))
	switch {
	case reply.Hang:
		<-r.Context().Done()
	case reply.Status != 0 && reply.Raw != "":
		w.WriteHeader(reply.Status)
		_, _ = io.WriteString(w, reply.Raw) // as below
	case reply.Status != 0:
		if reply.RetryAfter != "" {
			w.Header().Set("Retry-After", reply.RetryAfter)
		}
		fail(w, r, reply.Status, reply.Error)
	case reply.Raw != "":
		_, _ = io.WriteString(w, reply.Raw) // the client may have gone
	default:
		_ = json.NewEncoder(w).Encode(format.reply(q, reply)) // as above
	}
}

// noteRequest records a request, and returns its number.
func (s *Server) noteRequest(q Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, q)
	return len(s.requests)
}

// ofAnthropic distinguishes a request to Anthropic's API from one to OpenAI's.
func ofAnthropic(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/messages") }

// requestID is the name of the header with the id of a request.
func requestID(r *http.Request) string {
	if ofAnthropic(r) {
		return "request-id"
	}
	return "x-request-id"
}

// fail answers with an error, in the shape of the API that was asked.
func fail(w http.ResponseWriter, r *http.Request, status int, message string) {
	body := errorBody(message)
	if ofAnthropic(r) {
		body = object{"type": "error", "request_id": nil, "error": object{"type": errorType(status), "message": message}}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// errorType is Anthropic's word for a status.
func errorType(status int) string {
	const overloaded = 529
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == overloaded:
		return "overloaded_error"
	case status >= http.StatusInternalServerError:
		return "api_error"
	}
	return "invalid_request_error"
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// at follows keys and indexes into a decoded JSON value. It returns nil if something is missing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(map[string]any)
			v = o[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// Between is the part of a prompt between two texts, trimmed; empty if they are not there.
func Between(prompt, before, after string) string {
	_, rest, ok := strings.Cut(prompt, before)
	if !ok {
		return ""
	}
	part, _, _ := strings.Cut(rest, after)
	return strings.TrimSpace(part)
}
