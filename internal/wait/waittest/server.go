package waittest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// Server is a real HTTP server that answers as it is told and records what it was asked.
type Server struct {
	*httptest.Server
	answer   http.HandlerFunc
	mu       sync.Mutex
	requests []string
	headers  []http.Header
}

// NewServer starts a server, which ends with the test.
func NewServer(t *testing.T, answer http.HandlerFunc) *Server {
	s := &Server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		s.headers = append(s.headers, r.Header)
		s.mu.Unlock()
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Requests are the method, the URI and the body of each request.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Headers are the headers of each request.
func (s *Server) Headers() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headers
}

// Reply is an answer that is always the same.
func Reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// ParseJobs reads the value of the key jobs, with which nothing is wrong.
func ParseJobs(t *testing.T, text string) wait.Jobs {
	t.Helper()
	n, err := input.Parse("jobs.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	jobs := wait.ParseJobs(r, n)
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	return jobs
}
