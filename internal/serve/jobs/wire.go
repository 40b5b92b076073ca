package jobs

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// response is the answer to a request: a status and a JSON document.
type response struct {
	status int
	body   any
}

// requestError is an error answer in the registry's form.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

// bindError is the error of an unreadable parameter; the registry has another form for these.
type bindError struct{ text string }

func (e *bindError) Error() string { return e.text }

var errEnded = &requestError{http.StatusConflict, "job is already in a terminal state"}

func badRequest(text string) error { return &requestError{http.StatusBadRequest, text} }

// maxBody is how long the body of a request may be.
const maxBody = 4 << 20

// answering writes the response that a function returns.
func (h *handler) answering(serve func(*handler, *http.Request) (response, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		out, err := serve(h, r)
		if err != nil {
			if r.Context().Err() != nil && !errors.As(err, new(*requestError)) {
				return // nobody is there to read it
			}
			out = h.failure(r, err)
		}
		data, err := json.Marshal(out.body)
		if err != nil {
			h.o.Log.Error("an answer is no JSON", "path", r.URL.Path, "error", err)
			out.status, data = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(out.status)
		if r.Method != http.MethodHead {
			_, _ = w.Write(data) // the client may be gone
		}
	}
}

// failure converts an error to an answer.
func (h *handler) failure(r *http.Request, err error) response {
	var bind *bindError
	if errors.As(err, &bind) {
		return response{http.StatusBadRequest, map[string]string{"msg": bind.text}}
	}
	status, text := http.StatusServiceUnavailable, "the store cannot be used at the moment; try again"
	var refused *requestError
	var input *runner.InputError
	var answer *service.AnswerError
	switch {
	case errors.As(err, &answer):
		if status, text = http.StatusConflict, answer.Error(); answer.Malformed {
			status = http.StatusBadRequest
		}
	case errors.As(err, &refused):
		status, text = refused.status, refused.text
	case errors.As(err, &input):
		status, text = http.StatusBadRequest, input.Error()
	case errors.Is(err, service.ErrConflict):
		status, text = http.StatusConflict, err.Error()
	case errors.Is(err, store.ErrNotFound):
		status, text = http.StatusNotFound, "job not found: "+r.PathValue("id")
	case errors.Is(err, store.ErrJobEnded):
		status, text = errEnded.status, errEnded.text
	default:
		h.o.Log.Error("a request about jobs failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	return response{status, map[string]string{"error": text, "timestamp": h.o.Now().UTC().Format(time.RFC3339Nano)}}
}

// Refuse answers a request that does not reach the handler.
func Refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// Two strings always marshal.
	data, _ := json.Marshal(map[string]string{"error": detail, "timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
	_, _ = w.Write(data)
}

// noPage writes the registry's answer for a missing page.
func noPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found")
}

// readBody reads the JSON of a request. An empty body is an empty object if that is allowed.
func readBody(r *http.Request, v any, mayBeEmpty bool) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &requestError{http.StatusRequestEntityTooLarge, "the request is too large"}
	case err != nil:
		return nil, badRequest("the request has ended too early")
	case len(data) == 0 && mayBeEmpty:
		return data, nil
	case len(data) == 0:
		return nil, badRequest("Invalid JSON payload: EOF")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, badRequest("Invalid JSON payload: " + jsonobj.Explain(err).Error())
	}
	return data, nil
}

// seconds converts a time to the wire's form; nil if it is zero.
func seconds(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	s := t.Unix()
	return &s
}

// text converts a string to the wire's form; nil if it is empty.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
