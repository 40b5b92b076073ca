// Package langgraph speaks with servers of LangGraph: threads, runs and their states. [NewSource] is
// the source that asks whether a run goes on. The package knows nothing of rollouts.
package langgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Server is a server as it is configured. URL and Headers may hold ${VAR}.
type Server struct {
	httpcall.Caller
	URL     string
	Headers map[string]string
}

// Run is a run of a thread.
type Run struct {
	ID     string `json:"run_id"`
	Status string `json:"status"`
	// Metadata has the key of the work, by which a run is found again.
	Metadata struct {
		Work string `json:"evalrun"`
	} `json:"metadata"`
}

// GoesOn reports whether the run has not ended.
func (r Run) GoesOn() bool { return r.Status == "pending" || r.Status == "running" }

// State is what a thread has come to.
type State struct {
	Values json.RawMessage `json:"values"`
	Next   []string        `json:"next"`
	Tasks  []struct {
		Name       string          `json:"name"`
		Error      json.RawMessage `json:"error"`
		Result     json.RawMessage `json:"result"`
		Interrupts json.RawMessage `json:"interrupts"`
	} `json:"tasks"`
}

// do sends a request and reads its answer into the value, which may be nil.
func (s Server) do(ctx context.Context, method, path string, body, into any) error {
	text, err := template.URL(s.URL, s.Resolve, nil)
	if err != nil {
		return fault.Newf(fault.Start, "the agent's url: %v", err)
	}
	base, err := url.Parse(text)
	if err != nil {
		return fault.New(fault.Start, "the agent's url is none") // the error has the values of variables in it
	}
	q := httpcall.Call{Request: httpcall.Request{Method: method, URL: s.URL, Headers: s.Headers}, Once: true,
		LiteralURL: base.JoinPath(path).String()}
	if body != nil {
		if q.LiteralBody, err = jsonobj.Marshal(body); err != nil {
			return fault.New(fault.Internal, err.Error())
		}
	}
	what := method + " " + path
	a, err := s.Do(ctx, q)
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return fault.New(fault.OutputLimit, f.Message)
	case err != nil:
		return &httpcall.Error{Err: fmt.Errorf("%s: %w", what, err), Category: fault.Start, Sent: a.Sent, Temporary: true}
	case !a.OK():
		return &httpcall.Error{Err: fmt.Errorf("%s: %w", what, a.Err()), Category: httpcall.CategoryOf(a.Status), Status: a.Status,
			Sent:      a.Status != http.StatusTooManyRequests && a.Status != http.StatusServiceUnavailable,
			Temporary: retry.Temporary(a.Status) && a.Status != http.StatusConflict, After: a.RetryAfter}
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(a.Body, into); err != nil {
		return fault.Newf(fault.Protocol, "%s: %s answered %d with what is no answer of LangGraph's server: %q", what, a.What,
			a.Status, jsonvalue.Excerpt(a.Body))
	}
	return nil
}

// NewThread makes a thread, unless it is there.
func (s Server) NewThread(ctx context.Context, id string) error {
	var made struct {
		ID string `json:"thread_id"`
	}
	err := s.do(ctx, http.MethodPost, "/threads", map[string]any{"thread_id": id, "if_exists": "do_nothing"}, &made)
	if err == nil && made.ID != id {
		return fault.Newf(fault.Protocol, "the server has not made the thread %s that it was asked for; is it one of LangGraph?", id)
	}
	return err
}

// Start starts a run of a thread. what is its "input" or its "command".
func (s Server) Start(ctx context.Context, thread, assistant, work string, what map[string]any) (Run, error) {
	body := map[string]any{"assistant_id": assistant, "multitask_strategy": "reject", "metadata": map[string]any{"evalrun": work}}
	for key, value := range what {
		body[key] = value
	}
	var run Run
	if err := s.do(ctx, http.MethodPost, "/threads/"+thread+"/runs", body, &run); err != nil {
		return run, err
	}
	return run, run.check()
}

// Find looks for the run with a key of work; found is false if there is none.
func (s Server) Find(ctx context.Context, thread, work string) (run Run, found bool, err error) {
	var runs []Run
	if err := s.do(ctx, http.MethodGet, "/threads/"+thread+"/runs", nil, &runs); err != nil {
		return run, false, err
	}
	for _, one := range runs {
		if one.Metadata.Work == work {
			return one, true, one.check()
		}
	}
	return run, false, nil
}

// Get asks for a run.
func (s Server) Get(ctx context.Context, thread, id string) (Run, error) {
	var run Run
	if err := s.do(ctx, http.MethodGet, "/threads/"+thread+"/runs/"+url.PathEscape(id), nil, &run); err != nil {
		return run, err
	}
	return run, run.check()
}

// State asks for what a thread has come to.
func (s Server) State(ctx context.Context, thread string) (st State, err error) {
	if err = s.do(ctx, http.MethodGet, "/threads/"+thread+"/state", nil, &st); err == nil && len(st.Values) == 0 {
		err = fault.New(fault.Protocol, "the server told the state of a thread without its values")
	}
	return st, err
}

// Cancel ends a run. One that has ended is no error.
func (s Server) Cancel(ctx context.Context, thread, id string) error {
	err := s.do(ctx, http.MethodPost, "/threads/"+thread+"/runs/"+url.PathEscape(id)+"/cancel", nil, nil)
	var failed *httpcall.Error
	if errors.As(err, &failed) && (failed.Status == http.StatusNotFound || failed.Status == http.StatusConflict) {
		return nil
	}
	return err
}

func (r Run) check() error {
	if r.ID == "" || r.Status == "" {
		return fault.New(fault.Protocol, "the server told of a run without an id or a status")
	}
	return nil
}

// Watch is what is needed to ask for a run, beside its id. It is stored with a trigger: URL and
// Headers hold ${VAR}, and no value of one.
type Watch struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Thread  string            `json:"thread"`
	// Interval is how often it is asked for at first.
	Interval wait.Duration `json:"interval,omitzero"`
}

// source asks for runs.
type source struct {
	wait.Begun
	server Server
	watch  Watch
}

// NewSource returns the source for what a trigger watches.
func NewSource(c httpcall.Caller, watch json.RawMessage) (wait.Source, error) {
	s := source{server: Server{Caller: c}}
	if err := json.Unmarshal(watch, &s.watch); err != nil {
		return nil, fmt.Errorf("what the trigger watches: %w", err)
	}
	s.server.URL, s.server.Headers, s.server.Polling.Interval = s.watch.URL, s.watch.Headers, s.watch.Interval
	return s, nil
}

// Check implements wait.Source. The payload is the run, however it has ended.
func (s source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	run, err := s.server.Get(ctx, s.watch.Thread, j.ItemKey)
	var f *fault.Fault
	var failed *httpcall.Error
	switch {
	case errors.As(err, &f):
		return wait.Status{Done: true, Fault: fault.New(fault.Job, f.Message)}, nil
	case errors.As(err, &failed) && failed.Temporary:
		return wait.Status{}, &wait.RetryError{After: s.server.After(j, httpcall.Answer{RetryAfter: failed.After}), Err: failed}
	case errors.As(err, &failed) && failed.Status == http.StatusNotFound:
		return wait.Status{Done: true, Fault: fault.Newf(fault.JobLost, "the server does not know the run any more: %v", failed)}, nil
	case err != nil:
		return wait.Status{Done: true, Fault: fault.New(fault.Job, err.Error())}, nil
	case run.GoesOn():
		return wait.Status{After: s.server.After(j, httpcall.Answer{})}, nil
	}
	payload, err := jsonobj.Marshal(map[string]string{"run_id": run.ID, "status": run.Status})
	return wait.Status{Done: true, Payload: payload}, err
}

// Cancel implements wait.Source.
func (s source) Cancel(ctx context.Context, j wait.Job) error {
	return s.server.Cancel(ctx, s.watch.Thread, j.ItemKey)
}
