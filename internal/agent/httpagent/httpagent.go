// Package httpagent runs an agent that is a service: the document that a function agent reads on
// stdin is posted to it, once for each segment, and its answer is the document that such an agent
// prints. A service that answers 202 with a Location is asked there for its answer, by a source of
// jobs: the rollout is suspended. It knows nothing of sandboxes and workspaces of its own.
package httpagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	waithttp "github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// answerID is the interrupt by which a segment waits for the answer to a request that was accepted.
const answerID = "evalrun-http-answer"

// httpAgent posts the document of each segment.
type httpAgent struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
	client   http.Client
	// pause waits between tries.
	pause func(ctx context.Context, d time.Duration)
}

// New makes an agent from an entry of type http.
func New(e agent.Entry, opts agent.Options) agent.Agent {
	h := &httpAgent{entry: e, settings: agent.SettingsOf[Settings](e), opts: opts, pause: agent.Pause}
	h.client.Transport = http.DefaultTransport.(*http.Transport).Clone()
	// A POST that is sent again is another request, and its headers are for nobody else.
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h
}

// Close implements Agent.
func (h *httpAgent) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// Run implements Agent.
func (h *httpAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	ctx, cancel := seg.Bounded(ctx, time.Duration(h.entry.Timeout))
	defer cancel()
	if payload, waited := seg.Resume[answerID]; waited {
		if d := seg.Deliveries[answerID]; d.Error != nil {
			return agent.Outcome{Fault: fault.New(fault.Job, h.opts.RedactText(d.Error.Message))}, nil
		}
		return h.outcome(seg, payload)
	}
	document, err := function.Envelope(seg)
	if err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: input or payload: %w", h.entry.Name, err)
	}
	a, bad := h.post(ctx, seg, document)
	if bad == nil && a.accepted() {
		var out agent.Outcome
		if out, bad = h.accepted(a); bad == nil {
			return out, nil
		}
	}
	if bad != nil {
		bad.Message = h.opts.RedactText(bad.Message)
		return agent.Outcome{Fault: bad}, nil
	}
	return h.outcome(seg, a.body)
}

// outcome keeps the document of a segment and reads it.
func (h *httpAgent) outcome(seg agent.Segment, document []byte) (agent.Outcome, error) {
	if err := h.keep(filepath.Join(seg.Dir, record.FileOutput), document); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", h.entry.Name, err)
	}
	out := function.Outcome(document)
	for _, in := range out.Interrupts {
		if in.ID == answerID {
			out = agent.Outcome{Fault: fault.Newf(fault.InvalidInterrupt, "__interrupt__: the id %s is evalrun's own", answerID)}
			break
		}
	}
	if out.Fault != nil {
		out.Fault.Message = h.opts.RedactText(out.Fault.Message)
	}
	out, err := function.Kept(seg, out, document)
	if err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", h.entry.Name, err)
	}
	return out, nil
}

// answer is what the service has answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) accepted() bool { return a.status == http.StatusAccepted }

// post posts the document, again if that may help: the service knows by the idempotency key that it
// is the same request.
func (h *httpAgent) post(ctx context.Context, seg agent.Segment, document []byte) (answer, *fault.Fault) {
	for tries := 1; ; tries++ {
		a, bad, after := h.try(ctx, seg, document)
		switch {
		case ctx.Err() != nil:
			return a, agent.CauseFault(ctx)
		case bad == nil || after < 0 || tries == agent.MaxTries:
			return a, bad
		}
		h.pause(ctx, agent.BeforeTry(tries, after))
	}
}

// try posts the document once. after is how long the service wants to be left alone before it is
// tried again; it is negative where that would not help.
func (h *httpAgent) try(ctx context.Context, seg agent.Segment, document []byte) (a answer, bad *fault.Fault,
	after time.Duration) {
	request, bad := h.request(ctx, seg, document)
	if bad != nil {
		return a, bad, -1
	}
	failpoint.Hit("httpagent.posting")
	response, err := h.client.Do(request)
	if err != nil {
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return a, fault.Newf(fault.Start, "POST %s: %v", h.settings.URL, err), 0
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.header = response.StatusCode, response.Header
	a.body, err = io.ReadAll(io.LimitReader(response.Body, seg.OutputBytes+1))
	switch {
	case int64(len(a.body)) > seg.OutputBytes:
		return a, fault.Newf(fault.OutputLimit, "the service answered more than %d bytes (limits.outputBytes)",
			seg.OutputBytes), -1
	case err != nil:
		return a, fault.Newf(fault.InvalidOutput, "the answer to POST %s broke off after %d bytes: %v", h.settings.URL,
			len(a.body), err), -1
	}
	bad = h.refused(a)
	if bad == nil || !retry.Temporary(a.status) {
		return a, bad, -1
	}
	after, _ = retry.After(a.header, time.Now())
	return a, bad, after
}

// refused says what is wrong with the status of an answer, or with what it has in place of a
// document.
func (h *httpAgent) refused(a answer) *fault.Fault {
	what := fmt.Sprintf("POST %s answered %d %s", h.settings.URL, a.status, http.StatusText(a.status))
	switch {
	case a.status >= 300 && a.status < 400:
		return fault.Newf(fault.AgentError, "%s: a request is not sent on to another address; name %s in url if that is the agent",
			what, a.header.Get("Location"))
	case retry.Temporary(a.status), a.status == http.StatusUnauthorized, a.status == http.StatusForbidden,
		a.status == http.StatusNotFound:
		return fault.Newf(fault.Start, "%s: %s", what, jsonvalue.Excerpt(a.body))
	case a.status < 200 || a.status >= 300:
		return fault.Newf(fault.AgentError, "%s: %s", what, jsonvalue.Excerpt(a.body))
	case a.accepted():
		return nil
	}
	if wrong := waithttp.NoDocument(a.header.Get("Content-Type"), a.body); wrong != "" {
		category := fault.InvalidOutput
		if len(bytes.TrimSpace(a.body)) == 0 {
			category = fault.NoOutput
		}
		return fault.Newf(category, "%s, %s", what, wrong)
	}
	return nil
}

func (h *httpAgent) request(ctx context.Context, seg agent.Segment, document []byte) (*http.Request, *fault.Fault) {
	target, err := template.URL(h.settings.URL, h.opts.Lookup, nil)
	if err != nil {
		return nil, fault.Newf(fault.Start, "the agent's url: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(document))
	if err != nil {
		return nil, fault.New(fault.Start, "the agent's url is none") // the error has the values of variables in it
	}
	for name, text := range h.settings.Headers {
		value, err := template.Resolver(h.opts.Lookup).Expand(text)
		if err != nil {
			return nil, fault.Newf(fault.Start, "the agent's header %s: %v", name, err)
		}
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Idempotency-Key", seg.WorkKey())
	request.Header.Set("Traceparent", seg.Traceparent())
	return request, nil
}

// accepted makes an interrupt of an answer that promises another one at its Location.
func (h *httpAgent) accepted(a answer) (agent.Outcome, *fault.Fault) {
	location := a.header.Get("Location")
	if location == "" {
		return agent.Outcome{}, fault.Newf(fault.Protocol,
			"POST %s answered 202 without a Location: nobody knows where its answer will be", h.settings.URL)
	}
	w := waithttp.Watch{URL: h.settings.URL, Headers: h.settings.Headers, Interval: h.settings.Interval}
	key, err := w.Key(location, h.opts.Lookup)
	if err != nil {
		return agent.Outcome{}, fault.Newf(fault.Protocol, "POST %s answered 202: %v", h.settings.URL, err)
	}
	if h.opts.RedactText(key) != key {
		return agent.Outcome{}, fault.Newf(fault.Protocol,
			"POST %s answered 202 with a secret in its Location, which would be stored", h.settings.URL)
	}
	if after, asked := retry.After(a.header, time.Now()); asked {
		w.NotBefore = time.Now().Add(after)
	}
	watch, err := json.Marshal(w)
	if err != nil {
		return agent.Outcome{}, fault.New(fault.Internal, err.Error())
	}
	payload, err := json.Marshal(map[string]string{"what": "answer", "title": h.entry.Name + " answers", "location": key})
	if err != nil {
		return agent.Outcome{}, fault.New(fault.Internal, err.Error())
	}
	return agent.Outcome{Interrupts: []wait.Interrupt{{ID: answerID, Specs: []wait.Spec{{
		Type: wait.TypeJob, Name: string(wait.TypeJob), ItemKey: key, Payload: payload, Watch: watch,
	}}}}}, nil
}

// keep writes a file through the redaction.
func (h *httpAgent) keep(path string, content []byte) error {
	return os.WriteFile(path, []byte(h.opts.RedactText(string(content))), 0o600)
}
