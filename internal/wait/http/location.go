package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Watch is what is needed to ask for the answer of an agent that has answered 202, beside its key.
// It is stored with a trigger: URL and Headers hold ${VAR}, and no value of one.
type Watch struct {
	// URL is that of the agent.
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	// Interval is how often it is asked for at first, NotBefore when for the first time.
	Interval  wait.Duration `json:"interval,omitzero"`
	NotBefore time.Time     `json:"notBefore,omitzero"`
}

// Key makes the key of an answer from its Location: path and query. A Location on another host is
// refused, since the headers of the agent are not for it.
func (w Watch) Key(location string, resolve template.Resolver) (string, error) {
	base, err := w.base(resolve)
	if err != nil {
		return "", err
	}
	to, err := base.Parse(location)
	switch {
	case err != nil:
		return "", errors.New("its Location is no URL")
	case to.Scheme != base.Scheme || to.Host != base.Host:
		return "", fmt.Errorf("its Location is on another host, %s, and the agent's headers are not for that", to.Host)
	}
	return to.RequestURI(), nil
}

func (w Watch) base(resolve template.Resolver) (*url.URL, error) {
	text, err := template.URL(w.URL, resolve, nil)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the agent's url is none") // the error has the values of variables in it
	}
	return base, nil
}

// answer is the source of the answers of agents that have answered 202.
type answer struct {
	wait.Begun
	httpcall.Caller
	watch Watch
}

// NewAnswer returns the source for what a trigger watches.
func NewAnswer(c httpcall.Caller, watch json.RawMessage) (wait.Source, error) {
	a := answer{Caller: c}
	if err := json.Unmarshal(watch, &a.watch); err != nil {
		return nil, fmt.Errorf("what the trigger watches: %w", err)
	}
	a.Polling.Interval = a.watch.Interval
	return a, nil
}

// Check implements wait.Source. 202 means that there is no answer yet.
func (s answer) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	if left := s.watch.NotBefore.Sub(s.Now()); left > 0 {
		return wait.Status{After: left}, nil
	}
	a, err := s.ask(ctx, j, http.MethodGet)
	switch {
	case err != nil:
		return wait.Status{}, s.Retry(j, a, err)
	case a.Status == http.StatusAccepted:
		return wait.Status{After: s.After(j, a)}, nil
	case a.IsGone():
		return wait.Status{Done: true, Fault: fault.New(fault.JobLost, a.Err().Error())}, nil
	case retry.Temporary(a.Status):
		return wait.Status{}, s.Retry(j, a, a.Err())
	case !a.OK():
		return wait.Status{Done: true, Fault: fault.New(fault.Job, a.Err().Error())}, nil
	}
	if wrong := NoDocument(a.ContentType, a.Body); wrong != "" {
		return wait.Status{Done: true, Fault: fault.Newf(fault.Job, "%s answered %d, %s", a.What, a.Status, wrong)}, nil
	}
	return wait.Status{Done: true, Payload: bytes.TrimSpace(a.Body)}, nil
}

// Cancel implements wait.Source.
func (s answer) Cancel(ctx context.Context, j wait.Job) error {
	a, err := s.ask(ctx, j, http.MethodDelete)
	switch a.Status {
	case http.StatusNotFound, http.StatusGone, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil
	}
	if err == nil && !a.OK() {
		err = a.Err()
	}
	return err
}

// ask sends a request to the place of the answer.
func (s answer) ask(ctx context.Context, j wait.Job, method string) (httpcall.Answer, error) {
	base, err := s.watch.base(s.Resolve)
	if err != nil {
		return httpcall.Answer{}, err
	}
	place, err := base.Parse(j.ItemKey)
	if err != nil {
		return httpcall.Answer{}, fault.New(fault.Job, "the place of the answer is no URL")
	}
	return s.Do(ctx, httpcall.Call{Request: httpcall.Request{Method: method, URL: s.watch.URL, Headers: s.watch.Headers},
		Job: j, LiteralURL: place.String()})
}

// NoDocument says why what a service has answered is not one JSON document, without a word of what
// it is for. It is empty if it is one.
func NoDocument(contentType string, body []byte) string {
	text := bytes.TrimSpace(body)
	switch {
	case len(text) == 0:
		return "and nothing else; expected a JSON document"
	case json.Valid(text):
		return ""
	case strings.Contains(strings.ToLower(contentType), "html") || text[0] == '<':
		return "with a page (HTML) in place of a JSON document; is this the address of the agent? It begins " +
			fmt.Sprintf("%q", jsonvalue.Excerpt(text))
	}
	return "with something else than one JSON document, or with a part of one: it begins " +
		fmt.Sprintf("%q", jsonvalue.Excerpt(text))
}
