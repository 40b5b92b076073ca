package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// problemPrefix begins the type of every problem.
const problemPrefix = "urn:evalrun:problem:"

// Problem is why a request was not done, in the form of RFC 9457. It is an error.
type Problem struct {
	// Type ends with a word that programs decide on; docs/serve.md lists them.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what was expected.
	Detail string `json:"detail,omitempty"`
	// Errors are the places of an uploaded document that are wrong.
	Errors []PlacedError `json:"errors,omitempty"`
}

// PlacedError is the error at one place of a document.
type PlacedError struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// problem makes a Problem with the title of the status.
func problem(status int, word, detail string) *Problem {
	return &Problem{Type: problemPrefix + word, Title: http.StatusText(status), Status: status, Detail: detail}
}

// problemOf makes a Problem of an error of the service.
func problemOf(err error) *Problem {
	var p *Problem
	var wrong *runner.InputError
	var places input.Problems
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &places):
		p := problem(http.StatusUnprocessableEntity, "invalid-eval-set", "the eval set cannot be run; errors says why")
		for _, one := range places {
			p.Errors = append(p.Errors, PlacedError{one.Line, one.Column, redact.Line(one.Key), redact.Line(one.Message)})
		}
		return p
	case errors.Is(err, service.ErrConflict):
		return problem(http.StatusConflict, "idempotency-key-reused", redact.Line(err.Error()))
	case errors.Is(err, service.ErrNotFound):
		return problem(http.StatusNotFound, "not-found", redact.Line(err.Error()))
	case errors.As(err, &wrong):
		return problem(http.StatusUnprocessableEntity, "invalid-request", redact.Line(strings.TrimSpace(wrong.Error())))
	case errors.Is(err, store.ErrClosed):
		return problem(http.StatusServiceUnavailable, "unavailable", "the service is being stopped; try again")
	}
	return problem(http.StatusInternalServerError, "internal", "evalrun itself failed; its log says why")
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, p.Status, p)
}

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, status int, v any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client may be gone
}
