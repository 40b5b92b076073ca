// Package httpcall sends the requests of sources that ask over HTTP: it fills their templates,
// reads the answers, and says when to ask again. Its errors hold no secret. It knows nothing of
// what a server answers.
package httpcall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

const (
	// requestTimeout is how long one request may take.
	requestTimeout = 30 * time.Second
	// idleTimeout closes connections soon after a round of checks.
	idleTimeout = 2 * time.Second
	// maxRetryAfter is the longest wait that a server may ask for, minRetryAfter the shortest.
	maxRetryAfter, minRetryAfter = 24 * time.Hour, time.Second
)

// Client returns what sends the requests of all sources that ask over HTTP. given is for tests, nil
// means one that gives up after 30 s; its CheckRedirect is replaced.
func Client(given *http.Client) *http.Client {
	c := &http.Client{}
	if given != nil {
		*c = *given
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.IdleConnTimeout, t.ResponseHeaderTimeout = idleTimeout, requestTimeout
		c.Transport = t
	}
	if c.Timeout == 0 {
		c.Timeout = requestTimeout
	}
	c.CheckRedirect = sameOrigin
	return c
}

// sameOrigin follows redirects within one origin only: headers such as X-API-Key and the job's
// input are for nobody else.
func sameOrigin(next *http.Request, via []*http.Request) error {
	if first := via[0].URL; next.URL.Scheme != first.Scheme || next.URL.Host != first.Host || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

// Caller sends the requests of one source. It resolves variables for each request anew: a token
// lives for an hour, a job for days.
type Caller struct {
	wait.Env
	Polling Polling
}

// Call is one request for one trigger.
type Call struct {
	Request
	Job wait.Job
	// KeyHeader is the header that carries the trigger's id, if the server knows one.
	KeyHeader string
	// Starts says that the request starts the job: its deadline, its id and the trace go with it,
	// in headers, unless these are configured. Nothing is sent if no time is left.
	Starts bool
	// Once says that the request is sent once at most. A transport repeats one that has an
	// idempotency key by itself, and not every server knows such keys.
	Once bool
	// LiteralHeaders and LiteralBody are sent as they are. Text from a model or a server is no
	// template.
	LiteralHeaders map[string]string
	LiteralBody    json.RawMessage
	// LiteralURL, if not empty, is where the request is sent; URL then only names it.
	LiteralURL string
}

// Answer is the answer to a call. Of a call that failed only Sent is known: whether the request may
// have reached the server.
type Answer struct {
	Status int
	Body   []byte
	// ContentType is that of the body, as the server says.
	ContentType string
	RetryAfter  time.Duration
	Sent        bool
	// What names the request without the values of its variables.
	What string
}

// OK tells whether the status is one of success.
func (a Answer) OK() bool { return a.Status >= 200 && a.Status < 300 }

// IsGone tells whether the server does not know what was asked for, or not any more.
func (a Answer) IsGone() bool { return a.Status == http.StatusNotFound || a.Status == http.StatusGone }

// CancelErr is the error of a request that cancels a job. It is nil for a job that has ended before.
func CancelErr(a Answer, err error) error {
	if err != nil || a.OK() || a.IsGone() || a.Status == http.StatusConflict {
		return err
	}
	return a.Err()
}

// CheckErr is the error of a request that asks for a job: a fault if the job is lost, and else one after
// which it is asked again.
func (c Caller) CheckErr(j wait.Job, a Answer, err error) error {
	switch {
	case err != nil:
		return c.Retry(j, a, err)
	case a.IsGone():
		return fault.New(fault.JobLost, "the job is lost: "+a.Err().Error())
	case !a.OK(): // a token may be replaced and a right be given: neither ends a wait of days
		return c.Retry(j, a, a.Err())
	}
	return nil
}

// Value is the body as JSON.
func (a Answer) Value() json.RawMessage { return jsonvalue.FromOutput(a.Body) }

// Err is the answer as an error. It names the request as it is configured.
func (a Answer) Err() error {
	hint := ""
	if a.Status >= 300 && a.Status < 400 {
		hint = " (redirects to another host are not followed)"
	}
	return fmt.Errorf("%s answered %d %s%s: %s",
		a.What, a.Status, http.StatusText(a.Status), hint, jsonvalue.Excerpt(a.Body))
}

// Do sends a request and reads the answer. Its errors name the request as it is configured, so that
// they hold no secret. An error that is a *fault.Fault would be the same if the request were
// repeated.
func (c Caller) Do(ctx context.Context, q Call) (a Answer, err error) {
	a.What = q.Method + " " + q.URL
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, err := q.build(ctx, c.Resolve, c.Now())
	if err != nil {
		return a, err
	}
	resp, err := c.HTTP.Do(req)
	a.Sent = sent.Load()
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return a, fmt.Errorf("%s: %w", a.What, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a.Status, a.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
	switch a.Status {
	// Many APIs answer 200 as long as a job goes on.
	case http.StatusOK, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after, asked := retry.After(resp.Header, c.Now()); asked {
			a.RetryAfter = min(max(after, minRetryAfter), maxRetryAfter)
		}
	}
	if a.Body, err = jsonvalue.ReadPayload(resp.Body); err != nil {
		if errors.Is(err, jsonvalue.ErrTooLong) {
			return a, fault.Newf(fault.Job, "%s answered more than %d MiB", a.What, jsonvalue.MaxPayload>>20)
		}
		return a, fmt.Errorf("%s: reading the answer: %w", a.What, err)
	}
	return a, nil
}

// build fills the templates. A variable without a value can be given one later; what does not fit
// into a template is a fault.
func (q Call) build(ctx context.Context, resolve template.Resolver, now time.Time) (*http.Request, error) {
	what := q.Method + " " + q.URL
	handed := map[string]string{}
	if q.Starts {
		var err error
		if handed, err = q.Job.Headers(now); err != nil {
			return nil, err
		}
	}
	names := map[string]bool{}
	q.AddVariables(names)
	for name := range names {
		if _, err := resolve.Value(name); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	v := values(q.Job)
	var err error
	target := q.LiteralURL
	if target == "" {
		if target, err = template.URL(q.URL, resolve, v); err != nil {
			return nil, fault.New(fault.Job, what+": "+err.Error())
		}
	}
	body := []byte(q.LiteralBody)
	if len(q.Body) > 0 {
		if body, err = template.Body(q.Body, resolve, v, map[string]json.RawMessage{
			"inputArguments": q.Job.Spec.InputArguments(),
		}); err != nil {
			return nil, fault.New(fault.Job, what+": body: "+err.Error())
		}
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Job, what+": the request could not be made") // the error has the URL in it
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.Once {
		req.GetBody = nil
	}
	for name, value := range handed {
		req.Header.Set(name, value)
	}
	for name, template := range q.Headers {
		value, err := resolve.Expand(template)
		if err != nil {
			return nil, fault.New(fault.Job, what+": header "+name+": "+err.Error())
		}
		req.Header.Set(name, value)
	}
	for name, value := range q.LiteralHeaders {
		req.Header.Set(name, value)
	}
	if q.KeyHeader != "" {
		req.Header.Set(q.KeyHeader, q.Job.TriggerID)
	}
	return req, nil
}

// After says how long to wait before a job is asked for again.
func (c Caller) After(j wait.Job, a Answer) time.Duration {
	return c.Polling.Next(j.Checks, c.Now().Sub(j.Since), a.RetryAfter, c.Rand)
}

// Retry wraps an error with when to try again, unless it is a fault.
func (c Caller) Retry(j wait.Job, a Answer, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return &wait.RetryError{After: c.After(j, a), Err: err}
}

// values are the placeholders' values for one trigger.
func values(j wait.Job) map[string]string {
	return map[string]string{"triggerId": j.TriggerID, "rolloutId": j.RolloutID, "process": j.Spec.Process,
		"folderPath": j.Spec.FolderPath, "folderKey": j.Spec.FolderKey, "itemKey": j.ItemKey, "webhookUrl": j.WebhookURL}
}

// Error says that a request to an agent has failed.
type Error struct {
	Err error
	// Category is that of the fault which the failure is, if nothing helps.
	Category fault.Category
	// Sent says that the agent may have taken the request, Temporary that it is worth another try,
	// after After at the earliest.
	Sent, Temporary bool
	After           time.Duration
	// Status is that of the answer, Code that of a JSON-RPC error; 0 if there is none.
	Status, Code int
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// CategoryOf is the category of the fault that an agent's answer with a status of failure is.
func CategoryOf(status int) fault.Category {
	switch {
	case status < 400, retry.Temporary(status), status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusNotFound:
		return fault.Start
	}
	return fault.AgentError
}
