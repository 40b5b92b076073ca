package wait

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

const (
	// requestTimeout is how long one request may take.
	requestTimeout = 30 * time.Second
	// idleTimeout closes connections soon after a round of checks.
	idleTimeout = 2 * time.Second
	// maxRetryAfter is the longest wait that a server may ask for, minRetryAfter the shortest.
	maxRetryAfter, minRetryAfter = 24 * time.Hour, time.Second
)

// client sends requests for all HTTP sources.
type client struct {
	http.Client
	rand func() float64
	now  func() time.Time
}

func newClient(given *http.Client, rand func() float64, now func() time.Time) *client {
	c := &client{rand: rand, now: now}
	if given != nil {
		c.Client = *given
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

// call is one request for one trigger.
type call struct {
	Request
	pending Job
	resolve resolver
	// keyHeader is the header that carries the trigger's id, if the server knows one.
	keyHeader string
	// literalHeaders and literalBody are sent as they are. What comes from a model or a server is
	// no template.
	literalHeaders map[string]string
	literalBody    json.RawMessage
}

// answer is what came back. Of a call that failed only sent is known: whether the request may have
// reached the server.
type answer struct {
	status     int
	body       []byte
	retryAfter time.Duration
	sent       bool
	// what names the request without the values of its variables.
	what string
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// value is the body as JSON.
func (a answer) value() json.RawMessage { return documentOrText(a.body) }

func (a answer) error() error {
	hint := ""
	if a.status >= 300 && a.status < 400 {
		hint = " (redirects to another host are not followed)"
	}
	return fmt.Errorf("%s answered %d %s%s: %s", a.what, a.status, http.StatusText(a.status), hint, excerpt(a.body))
}

// do sends a request and reads the answer. Its errors name the request as it is configured, so that
// they hold no secret. An error that is a *fault.Fault would be the same if the request were
// repeated.
func (c *client) do(ctx context.Context, q call) (a answer, err error) {
	a.what = q.Method + " " + q.URL
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, err := q.build(ctx)
	if err != nil {
		return a, err
	}
	resp, err := c.Do(req)
	a.sent = sent.Load()
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return a, fmt.Errorf("%s: %w", a.what, err)
	}
	defer func() { _ = resp.Body.Close() }()
	a.status = resp.StatusCode
	switch a.status {
	case http.StatusOK, http.StatusAccepted, http.StatusTooManyRequests, http.StatusServiceUnavailable: // many APIs answer 200 as long as a job goes on
		a.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), c.now())
	}
	if a.body, err = readBounded(resp.Body, maxPayload); err != nil {
		if errors.Is(err, errTooLong) {
			return a, fault.Newf(fault.Job, "%s answered more than %d MiB", a.what, maxPayload>>20)
		}
		return a, fmt.Errorf("%s: reading the answer: %w", a.what, err)
	}
	return a, nil
}

// build fills the templates. A variable without a value can be given one later; what does not fit
// into a template is a fault.
func (q call) build(ctx context.Context) (*http.Request, error) {
	what := q.Method + " " + q.URL
	names := map[string]bool{}
	q.variables(names)
	for name := range names {
		if _, err := q.resolve.value(name); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	v := values(q.pending)
	target, err := renderURL(q.URL, q.resolve, v)
	if err != nil {
		return nil, fault.New(fault.Job, what+": "+err.Error())
	}
	body := []byte(q.literalBody)
	if len(q.Body) > 0 {
		if body, err = renderBody(q.Body, q.resolve, v, q.pending.Spec.InputArguments()); err != nil {
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
	for name, template := range q.Headers {
		value, err := q.resolve.expand(template)
		if err != nil {
			return nil, fault.New(fault.Job, what+": header "+name+": "+err.Error())
		}
		req.Header.Set(name, value)
	}
	for name, value := range q.literalHeaders {
		req.Header.Set(name, value)
	}
	if q.keyHeader != "" {
		req.Header.Set(q.keyHeader, q.pending.TriggerID)
	}
	return req, nil
}

// parseRetryAfter reads seconds or a date; 0 if there is neither.
func parseRetryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	var d time.Duration
	if seconds, err := strconv.ParseInt(s, 10, 32); err == nil && seconds >= 0 {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		d = at.Sub(now)
	} else {
		return 0
	}
	return min(max(d, minRetryAfter), maxRetryAfter)
}
