// Package model sends requests to models. It keeps the limits of their providers, repeats requests
// as long as that may help, leaves out parameters that a model does not take, and reads the answers
// of all wire formats into one form. It knows nothing about what is asked: judges and agents make
// the bodies of their requests themselves.
package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/retry"
)

const (
	// Tries is how often a failing request is made that may be repeated.
	Tries = 5
	// firstPause is doubled for each further try, up to mostPause.
	firstPause = time.Second
	mostPause  = time.Minute
	// MaxAnswer is how many bytes an answer may have.
	MaxAnswer = 8 << 20
)

// Kind says why a request has no answer.
type Kind string

// The kinds of errors.
const (
	Invalid     Kind = "invalid"     // the provider refuses the request
	Unavailable Kind = "unavailable" // it cannot be reached
	Auth        Kind = "auth"        // it does not accept the key
	NoModel     Kind = "model"       // it does not have the model
	RateLimit   Kind = "rate-limit"  // it is asked too often
)

// Error is the reason why a request has no answer.
type Error struct {
	Kind    Kind
	Message string
}

func (e *Error) Error() string { return e.Message }

// The parameters that a model may not take. An error about one name of the limit counts for all its
// names.
const (
	ParamTemperature = "temperature"
	ParamSeed        = "seed"
	ParamTool        = "tool_choice"
	ParamLimit       = "max_completion_tokens"
	ParamOldLimit    = "max_tokens"
)

// Call is one question to a model. [Endpoint.Ask] sends it, perhaps several times.
type Call struct {
	Model string
	// API is the wire format; empty means that of the provider.
	API API
	// Base is the provider's URL, without a slash at its end, and Key its key.
	Base, Key string
	// Body makes the body of a request, without the parameters that are dropped.
	Body func(drop Dropped) (json.RawMessage, error)
	// Reserve is called before each request, which is not made if there is an error; nil reserves
	// nothing.
	Reserve func(ctx context.Context) error

	// Request is the last body that was sent. Response is the last body that came back.
	Request, Response json.RawMessage
	// Attempts counts the requests. LatencyMs is how long the provider has taken for them.
	Attempts  int
	LatencyMs int64
	// RequestID is the provider's id of the last request.
	RequestID string
	// Dropped are the parameters that the last request left out.
	Dropped []string
}

// Ask makes a request and repeats it until it is answered, as long as that may help. The error is
// an *Error, that of Reserve, or that of the context.
func (e *Endpoint) Ask(ctx context.Context, c *Call) error {
	for try := 1; ; try++ {
		status, header, err := e.send(ctx, c)
		var stop *stopError
		switch {
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && status < 300:
			return nil
		case status == http.StatusBadRequest && e.drop(c):
			try-- // it is another request now
			continue
		}
		failed := e.Failed(c.Model, status, c.Response, err)
		if status == http.StatusTooManyRequests && usedUp(c.Response) {
			failed.Message = "the account at the provider " + e.Name + " has nothing left to spend (HTTP status 429): " +
				said(c.Response)
			e.refuse(failed)
			return failed
		}
		if status == http.StatusTooManyRequests {
			e.overloaded()
		}
		if err == nil && !retry.Temporary(status) {
			e.remember(c.Model, failed)
			return failed
		}
		if try == Tries {
			return failed
		}
		wait := pauseBefore(try, header, e.o.Now())
		if end, ok := ctx.Deadline(); ok && wait > time.Until(end) {
			return failed // there is no time for another try
		}
		if err := e.o.Pause(ctx, wait); err != nil {
			return err
		}
	}
}

// stopError is an error after which nothing is tried again.
type stopError struct{ error }

// send makes one request. The error is a *stopError if none could be made.
func (e *Endpoint) send(ctx context.Context, c *Call) (status int, header http.Header, err error) {
	if known := e.Known(c.Model); known != nil {
		return 0, nil, &stopError{known}
	}
	drop := e.Dropped(c.Model)
	c.Dropped = drop.Names
	if c.Request, err = c.Body(drop); err != nil {
		return 0, nil, &stopError{&Error{Invalid, fmt.Sprintf("the question cannot be written as JSON: %v", err)}}
	}
	if err := e.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer e.leave()
	if c.Reserve != nil {
		if err := c.Reserve(ctx); err != nil {
			return 0, nil, &stopError{err}
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Base+cmp.Or(c.API, e.Config.API).Path(c.Model),
		bytes.NewReader(c.Request))
	if err != nil {
		return 0, nil, &stopError{&Error{Auth, "the base URL of the provider " + e.Name + " is no URL"}}
	}
	request.Header.Set("Content-Type", "application/json")
	e.Config.API.SetHeaders(request.Header, c.Key)
	c.Attempts++
	started := e.o.Now()
	response, err := e.o.Client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // only read
	c.Response, err = io.ReadAll(io.LimitReader(response.Body, MaxAnswer))
	c.LatencyMs += e.o.Now().Sub(started).Milliseconds()
	for _, name := range []string{"x-request-id", "request-id"} {
		if id := response.Header.Get(name); id != "" {
			c.RequestID = Short(id)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	return response.StatusCode, response.Header, nil
}

// drop leaves out of the next request the parameter that the provider's error names, and remembers
// that for the model. It reports whether there was one.
func (e *Endpoint) drop(c *Call) bool {
	said, d := strings.ToLower(string(c.Response)), e.Dropped(c.Model)
	names := slices.Clone(d.Names)
	switch {
	case c.sent(ParamLimit) && strings.Contains(said, ParamLimit) ||
		c.sent(ParamLimit) && strings.Contains(said, ParamOldLimit):
		e.learn(c.Model, Dropped{names, true})
		return true
	case c.sent(ParamTemperature) && strings.Contains(said, ParamTemperature):
		names = append(names, ParamTemperature)
	case c.sent(ParamSeed) && strings.Contains(said, ParamSeed):
		names = append(names, ParamSeed)
	case c.sent(ParamTool) && strings.Contains(said, ParamTool):
		names = append(names, ParamTool)
	default:
		return false
	}
	e.learn(c.Model, Dropped{names, d.OldLimit})
	return true
}

// sent reports whether the last request had a parameter.
func (c *Call) sent(name string) bool {
	var body map[string]json.RawMessage
	_ = json.Unmarshal(c.Request, &body) // it was marshalled here
	_, ok := body[name]
	return ok
}

// Failed returns the error of a failed request, which has a status and a body, or an error.
func (e *Endpoint) Failed(model string, status int, body []byte, err error) *Error {
	message := said(body)
	if err != nil {
		message = err.Error()
	}
	kind, what := Invalid, "refuses the request"
	switch {
	case err != nil || status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		kind, what = Unavailable, "cannot be reached"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind, what = Auth, "does not accept the key"
	case status == http.StatusNotFound:
		kind, what = NoModel, "does not have the model "+model
	case status == http.StatusTooManyRequests:
		kind, what = RateLimit, "is asked too often"
	}
	if status != 0 {
		what += " (HTTP status " + strconv.Itoa(status) + ")"
	}
	return &Error{kind, "the provider " + e.Name + " " + what + ": " + message}
}

// usedUp reports whether the provider says that an account has no money left, so that another try
// is useless. Its status is that of too many requests.
func usedUp(body []byte) bool {
	var in struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &in) // a body that is not JSON says nothing
	return in.Error.Code == insufficientQuota || in.Error.Type == insufficientQuota
}

// insufficientQuota is OpenAI's code for that.
const insufficientQuota = "insufficient_quota"

// ErrorIn returns the message of an error in an answer with a status of success; empty if there is
// none. Routers have sent the status before the provider behind them fails.
func ErrorIn(body []byte) string {
	var in struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &in) // a body that is not JSON says nothing
	return Short(in.Error.Message)
}

// said returns the message of the provider's error.
func said(body []byte) string {
	var in struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &in) == nil && in.Error.Message != "" {
		return Short(in.Error.Message)
	}
	return Short(string(body))
}

// Short returns the beginning of a text that somebody else has written.
func Short(text string) string {
	const most = 500
	text = strings.ToValidUTF8(strings.TrimSpace(text), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// pauseBefore returns how long to wait before the next try: as long as the provider asks for, else
// a random part of a time that doubles.
func pauseBefore(try int, header http.Header, now time.Time) time.Duration {
	if after, asked := retry.After(header, now); asked {
		return after
	}
	return rand.N(retry.Backoff(firstPause, mostPause, try-1)) //nolint:gosec // it only spreads requests
}
