package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/retry"
)

const (
	// tries is how often a failing request is made that may be repeated.
	tries = 5
	// firstPause is doubled for each further try, up to mostPause.
	firstPause = time.Second
	mostPause  = time.Minute
	// mostAnswer is how many bytes an answer may have.
	mostAnswer = 8 << 20
)

// exchange makes a request and repeats it until it is answered, as long as that may help.
func (a *asked) exchange(ctx context.Context) (reply, error) {
	for try := 1; ; try++ {
		status, header, err := a.send(ctx)
		var stop *eval.JudgeError
		switch {
		case errors.As(err, &stop):
			return reply{}, stop
		case ctx.Err() != nil:
			return reply{}, ended(ctx, ctx.Err())
		case err == nil && status < 300:
			return a.read()
		case status == http.StatusBadRequest && a.drop():
			try-- // it is another request now
			continue
		}
		failed := a.failed(status, err)
		if status == http.StatusTooManyRequests && a.usedUp() {
			failed.Message = "the account at the provider " + a.p.name + " has nothing left to spend (HTTP status 429): " +
				a.said()
			a.p.refuse(failed)
			return reply{}, failed
		}
		if status == http.StatusTooManyRequests {
			a.p.overloaded()
		}
		if err == nil && !retry.Temporary(status) {
			a.p.remember(a.q.Model, failed)
			return reply{}, failed
		}
		if try == tries {
			return reply{}, failed
		}
		wait := pauseBefore(try, header, a.j.o.Now())
		if end, ok := ctx.Deadline(); ok && wait > time.Until(end) {
			return reply{}, failed // there is no time for another try
		}
		if err := a.j.o.Pause(ctx, wait); err != nil {
			return reply{}, ended(ctx, err)
		}
	}
}

// send makes one request. The error is a *eval.JudgeError if none could be made.
func (a *asked) send(ctx context.Context) (status int, header http.Header, err error) {
	if known := a.p.known(a.q.Model); known != nil {
		return 0, nil, known
	}
	format := formats[a.p.config.API]
	drop := a.p.dropped(a.q.Model)
	a.call.Dropped = drop.names
	if a.request, err = json.Marshal(format.body(a.q, drop)); err != nil {
		return 0, nil, failure(eval.JudgeInvalid, "the question cannot be written as JSON: %v", err)
	}
	if err := a.p.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer a.p.leave()
	_, priced := a.j.o.Config.Prices.Of(a.q.Model)
	if err := a.j.budget.take(ctx, priced); err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+format.path, bytes.NewReader(a.request))
	if err != nil {
		return 0, nil, failure(eval.JudgeAuth, "the base URL of the provider %s is no URL", a.p.name)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "evalrun")
	format.headers(request.Header, a.key)
	a.call.Attempts++
	started := a.j.o.Now()
	response, err := a.j.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // only read
	a.response, err = io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	a.call.LatencyMs += a.j.o.Now().Sub(started).Milliseconds()
	for _, name := range []string{"x-request-id", "request-id"} {
		if id := response.Header.Get(name); id != "" {
			a.call.RequestID = short(id)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	return response.StatusCode, response.Header, nil
}

// read reads an answer, and counts its usage.
func (a *asked) read() (reply, error) {
	got, err := formats[a.p.config.API].read(a.response)
	if err != nil {
		return reply{}, nil // garbage is treated as an answer without a call: the question is asked again
	}
	if got.usage != nil {
		got.usage.Model = a.q.Model
		used := a.j.o.Config.Prices.Priced(*got.usage)
		if a.call.Batch != "" && a.call.Attempts == 0 && used.Cost != nil {
			*used.Cost *= a.j.o.Config.Batch.PriceFactor
		}
		if a.call.Cached {
			used.Cost = new(float64)
		} else {
			a.j.budget.used(used)
		}
		if a.call.Usage != nil {
			used, a.call.PaidTwice = a.call.Usage.Plus(used), true
		}
		a.call.Usage = &used
	}
	return got, nil
}

// drop leaves out of the next request the parameter that the provider's error names, and remembers
// that for the model. It reports whether there was one.
func (a *asked) drop() bool {
	said, d := strings.ToLower(string(a.response)), a.p.dropped(a.q.Model)
	names := slices.Clone(d.names)
	switch {
	case a.sent(paramLimit) && strings.Contains(said, paramLimit) ||
		a.sent(paramLimit) && strings.Contains(said, paramOldLimit):
		a.p.learn(a.q.Model, dropped{names, true})
		return true
	case a.sent(paramTemperature) && strings.Contains(said, paramTemperature):
		names = append(names, paramTemperature)
	case a.sent(paramSeed) && strings.Contains(said, paramSeed):
		names = append(names, paramSeed)
	case a.sent(paramTool) && strings.Contains(said, paramTool):
		names = append(names, paramTool)
	default:
		return false
	}
	a.p.learn(a.q.Model, dropped{names, d.oldLimit})
	return true
}

// sent reports whether the last request had a parameter.
func (a *asked) sent(name string) bool {
	var body map[string]json.RawMessage
	_ = json.Unmarshal(a.request, &body) // it was marshalled here
	_, ok := body[name]
	return ok
}

// failed returns the error of a failed request.
func (a *asked) failed(status int, err error) *eval.JudgeError {
	said := a.said()
	if err != nil {
		said = err.Error()
	}
	category, what := eval.JudgeInvalid, "refuses the request"
	switch {
	case err != nil || status >= 500 || status == http.StatusRequestTimeout || status == http.StatusConflict:
		category, what = eval.JudgeUnavailable, "cannot be reached"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		category, what = eval.JudgeAuth, "does not accept the key"
	case status == http.StatusNotFound:
		category, what = eval.JudgeModel, "does not have the model "+a.q.Model
	case status == http.StatusTooManyRequests:
		category, what = eval.JudgeRateLimit, "is asked too often"
	}
	if status != 0 {
		what += " (HTTP status " + strconv.Itoa(status) + ")"
	}
	return &eval.JudgeError{Category: category, Message: "the provider " + a.p.name + " " + what + ": " + said}
}

// usedUp reports whether the provider says that an account has no money left, so that another try
// is useless. Its status is that of too many requests.
func (a *asked) usedUp() bool {
	var in struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(a.response, &in) // a body that is not JSON says nothing
	return in.Error.Code == insufficientQuota || in.Error.Type == insufficientQuota
}

// insufficientQuota is OpenAI's code for that.
const insufficientQuota = "insufficient_quota"

// said returns the message of the provider's error.
func (a *asked) said() string {
	var in struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(a.response, &in) == nil && in.Error.Message != "" {
		return short(in.Error.Message)
	}
	return short(string(a.response))
}

// ended returns the error of a question whose context has ended.
func ended(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return failure(eval.JudgeTimeout, "the judge has not answered within limits.evaluatorTimeout")
	}
	return err
}

// pauseBefore returns how long to wait before the next try: as long as the provider asks for, else
// a random part of a time that doubles.
func pauseBefore(try int, header http.Header, now time.Time) time.Duration {
	if after, asked := retry.After(header, now); asked {
		return after
	}
	return rand.N(retry.Backoff(firstPause, mostPause, try-1)) //nolint:gosec // it only spreads requests
}
