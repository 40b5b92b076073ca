// Package a2a speaks with agents over the Agent2Agent protocol: it reads an agent's card, sends
// messages, and asks for tasks. It knows versions 1.0 (over JSON-RPC, and over HTTP with JSON) and
// 0.3 (over JSON-RPC). [NewSource] is the source that asks whether a task goes on. The package
// knows nothing of rollouts.
package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Peer is an agent as it is configured. URL and Headers may hold ${VAR}.
type Peer struct {
	httpcall.Caller
	// URL is where the agent is, or its card.
	URL     string
	Headers map[string]string
}

// base returns the URL with the values of its variables.
func (p Peer) base() (*url.URL, error) {
	text, err := template.URL(p.URL, p.Resolve, nil)
	if err != nil {
		return nil, fault.Newf(fault.Start, "the agent's url: %v", err)
	}
	base, err := url.Parse(text)
	if err != nil {
		return nil, fault.New(fault.Start, "the agent's url is none") // the error has the values of variables in it
	}
	return base, nil
}

// The codes of errors that decide on something.
const (
	codeMethodNotFound    = -32601
	codeTaskNotFound      = -32001
	codeTaskNotCancelable = -32002
	codeUnsupported       = -32004
	codeVersion           = -32009
)

// IsGone reports whether the agent does not know the task that it was asked for.
func IsGone(err error) bool {
	var e *httpcall.Error
	return errors.As(err, &e) && e.Code == codeTaskNotFound
}

// call is a request in the forms of all bindings.
type call struct {
	rpc, old string // the method in versions 1.0 and 0.3
	method   string // that of HTTP
	path     string
	query    url.Values
	params   any
	headers  map[string]string
}

// do sends a request and returns its result.
func (p Peer) do(ctx context.Context, to Interface, c call) (json.RawMessage, error) {
	base, err := p.base()
	if err != nil {
		return nil, err
	}
	place, err := base.Parse(to.Endpoint)
	if err != nil {
		return nil, fault.New(fault.Protocol, "the card of the agent names an address that is no URL")
	}
	q := httpcall.Call{Request: httpcall.Request{Method: http.MethodPost, URL: p.URL, Headers: p.Headers}, Once: true,
		LiteralHeaders: map[string]string{"A2A-Version": to.Version}}
	maps.Copy(q.LiteralHeaders, c.headers)
	what := c.rpc
	switch to.Binding {
	case bindingREST:
		place = place.JoinPath(c.path)
		what, q.Method = c.method+" "+c.path, c.method
		if q.Method == http.MethodGet {
			place.RawQuery = c.query.Encode()
			break
		}
		if q.LiteralBody, err = jsonobj.Marshal(c.params); err != nil {
			return nil, fault.New(fault.Internal, err.Error())
		}
	default:
		if to.Version == version03 {
			what = c.old
		}
		if q.LiteralBody, err = jsonobj.Marshal(map[string]any{
			"jsonrpc": "2.0", "id": "1", "method": what, "params": c.params}); err != nil {
			return nil, fault.New(fault.Internal, err.Error())
		}
	}
	q.LiteralURL = place.String()
	a, err := p.Do(ctx, q)
	if err != nil {
		var f *fault.Fault
		if errors.As(err, &f) {
			return nil, fault.New(fault.OutputLimit, f.Message)
		}
		return nil, &httpcall.Error{Err: fmt.Errorf("%s: %w", what, err), Category: fault.Start, Sent: a.Sent, Temporary: true}
	}
	return result(a, what, to.Binding)
}

// reply is what a JSON-RPC server answers, or in Error alone one that speaks HTTP with JSON.
type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details []struct {
			Reason string `json:"reason"`
		} `json:"details"`
	} `json:"error"`
}

// result reads an answer. An error of JSON-RPC counts whatever the status beside it is.
func result(a httpcall.Answer, what, binding string) (json.RawMessage, error) {
	var r reply
	isObject := json.Unmarshal(a.Body, &r) == nil && bytes.HasPrefix(bytes.TrimSpace(a.Body), []byte("{"))
	said := fmt.Errorf("%s: %w", what, a.Err())
	switch {
	case binding == bindingREST && !a.OK() && isObject && r.Error != nil:
		e := &httpcall.Error{Err: said, Category: httpcall.CategoryOf(a.Status), Sent: true, Temporary: retry.Temporary(a.Status)}
		for _, d := range r.Error.Details {
			switch d.Reason {
			case "TASK_NOT_FOUND":
				e.Code = codeTaskNotFound
			case "TASK_NOT_CANCELABLE":
				e.Code = codeTaskNotCancelable
			case "UNSUPPORTED_OPERATION":
				e.Code = codeUnsupported
			}
		}
		return nil, e
	case binding != bindingREST && isObject && r.Error != nil:
		e := &httpcall.Error{Code: r.Error.Code, Category: fault.AgentError, Sent: true,
			Err: fmt.Errorf("%s: the agent answered with error %d: %s", what, r.Error.Code,
				jsonvalue.Excerpt([]byte(r.Error.Message)))}
		if e.Code == codeMethodNotFound || e.Code == codeVersion {
			e.Category = fault.Protocol
		}
		return nil, e
	case !a.OK():
		busy := a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
		return nil, &httpcall.Error{Err: said, Category: httpcall.CategoryOf(a.Status), Sent: !busy, Temporary: retry.Temporary(a.Status),
			After: a.RetryAfter}
	case !isObject:
		return nil, noAnswer(what, a)
	case binding == bindingREST:
		return a.Body, nil
	case len(r.Result) == 0 || string(r.Result) == "null":
		return nil, noAnswer(what, a)
	}
	return r.Result, nil
}

// noAnswer says that something answers, but no agent.
func noAnswer(what string, a httpcall.Answer) error {
	got := fmt.Sprintf("%q", jsonvalue.Excerpt(bytes.TrimSpace(a.Body)))
	if strings.Contains(strings.ToLower(a.ContentType), "html") {
		got = "a page (HTML), " + got
	}
	return &httpcall.Error{Category: fault.Protocol, Sent: true,
		Err: fmt.Errorf("%s: %s answered %d with what is no answer of A2A: %s", what, a.What, a.Status, got)}
}
