package wait

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
)

// httpSource starts and watches jobs behind an HTTP API.
type httpSource struct {
	client *client
	// resolve gives the values of variables, for each request anew.
	resolve resolver
	config  HTTPConfig
	polling Polling
	// The compiled jq expressions; nil where none is configured.
	startKey, findKey, done, failed, why, value *gojq.Code
}

func newHTTP(c *client, resolve resolver, config HTTPConfig, polling Polling) (*httpSource, error) {
	if config.StartKind == "" {
		config.StartKind = AtMostOnce
	}
	s := &httpSource{client: c, resolve: resolve, config: config, polling: polling}
	expressions := map[**gojq.Code]string{&s.startKey: config.ItemKey, &s.done: config.Status.Done, &s.failed: config.Status.Failed, &s.why: config.Status.Error}
	if config.Find != nil {
		expressions[&s.findKey] = config.Find.ItemKey
	}
	if config.Result != nil {
		expressions[&s.value] = config.Result.Value
	}
	for code, expression := range expressions {
		if expression == "" {
			continue
		}
		var err error
		if *code, err = compile(expression); err != nil {
			return nil, fmt.Errorf("the jq expression %s: %w", expression, err)
		}
	}
	return s, nil
}

func (s *httpSource) StartKind() Start { return s.config.StartKind }

// Start starts a job. A searchable one is looked for first, so that calling Start again is safe for
// it as it is for an idempotent one. For an atMostOnce one every failure after the request has left
// is final.
func (s *httpSource) Start(ctx context.Context, p Job) (string, error) {
	if s.config.Start == nil {
		return "", fault.New(fault.Job, "the process has no start request in the eval set's jobs")
	}
	if s.config.StartKind == Searchable {
		if key, found, err := s.Find(ctx, p); found || err != nil {
			return key, notStarted(err)
		}
	}
	q := call{Request: *s.config.Start, pending: p, resolve: s.resolve}
	if len(q.Body) == 0 && q.Method != http.MethodGet && q.Method != http.MethodHead {
		q.Body = defaultBody
	}
	failpoint.Hit("trigger.starting")
	if !p.Until.IsZero() && !s.client.now().Before(p.Until) {
		return "", &RetryError{0, errTooLate, true}
	}
	switch s.config.StartKind {
	case Idempotent:
		q.keyHeader = s.config.IdempotencyHeader
	case AtMostOnce:
		ctx = context.WithoutCancel(ctx) // whether a request that was broken off has started a job cannot be known
	}
	a, err := s.client.do(ctx, q)
	switch {
	case err != nil && a.sent && s.config.StartKind == AtMostOnce:
		return "", fault.New(fault.StartUnknown, "the job may or may not have been started: "+err.Error())
	case err != nil && !a.sent:
		return "", notStarted(s.retry(p, a, err))
	case err != nil:
		return "", s.retry(p, a, err)
	case a.ok():
		return s.startedKey(ctx, p, a)
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable, a.status == http.StatusRequestTimeout,
		a.status == http.StatusConflict, a.status == http.StatusTooEarly:
		return "", s.retry(p, a, a.error())
	case a.status < 500:
		return "", fault.New(fault.Job, "the job could not be started: "+a.error().Error())
	case s.config.StartKind == AtMostOnce:
		return "", fault.New(fault.StartUnknown, "the job may or may not have been started: "+a.error().Error())
	}
	return "", s.retry(p, a, a.error())
}

// errTooLate is the error of a start whose claim has run out.
var errTooLate = errors.New("the job was not started: the wait is over by now, or another process may start it")

var defaultBody = json.RawMessage(`{"key":"{triggerId}","process":"{process}","folderPath":"{folderPath}","inputArguments":"{inputArguments}"}`)

// startedKey reads the key of a job from the answer to its start. Without an expression the key is
// the one that the job was given.
func (s *httpSource) startedKey(ctx context.Context, p Job, a answer) (string, error) {
	if s.startKey == nil {
		return p.TriggerID, nil
	}
	key, err := s.key(ctx, s.startKey, a)
	if err == nil && key == "" {
		err = errors.New("it gives nothing")
	}
	if err != nil {
		return "", fault.Newf(fault.StartUnknown, "the job was started, but its key could not be read with itemKey %s: %s; the answer was %s",
			s.config.ItemKey, err, excerpt(a.body))
	}
	return key, nil
}

// key evaluates an expression whose value is a string, a number, or null for none.
func (s *httpSource) key(ctx context.Context, code *gojq.Code, a answer) (string, error) {
	v, err := evaluate(ctx, code, a.value())
	if err != nil {
		return "", err
	}
	switch kindOf(v) {
	case '"':
		return stringOf(v), nil
	case '0':
		return string(v), nil
	case 'n', 0:
		return "", nil
	}
	return "", fmt.Errorf("expected a string or a number, got %s", kindName(v))
}

func (s *httpSource) Find(ctx context.Context, p Job) (string, bool, error) {
	if s.config.Find == nil || s.findKey == nil {
		return "", false, ErrNoFind
	}
	a, err := s.client.do(ctx, call{Request: s.config.Find.Request, pending: p, resolve: s.resolve})
	switch {
	case err != nil:
		return "", false, s.retry(p, a, err)
	case a.status == http.StatusNotFound:
		return "", false, nil
	case !a.ok():
		return "", false, s.retry(p, a, a.error())
	}
	key, err := s.key(ctx, s.findKey, a)
	if err != nil {
		return "", false, s.retry(p, a, fmt.Errorf("find.itemKey %s: %w", s.config.Find.ItemKey, err))
	}
	return key, key != "", nil
}

func (s *httpSource) Check(ctx context.Context, p Job) (Status, error) {
	status, err := s.check(ctx, p)
	var f *fault.Fault
	if errors.As(err, &f) {
		return Status{Done: true, Fault: f}, nil
	}
	return status, err
}

func (s *httpSource) check(ctx context.Context, p Job) (Status, error) {
	a, err := s.client.do(ctx, call{Request: s.config.Status.Request, pending: p, resolve: s.resolve})
	switch {
	case err != nil:
		return Status{}, s.retry(p, a, err)
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return Status{}, fault.New(fault.JobLost, "the job is lost: "+a.error().Error())
	case !a.ok():
		return Status{}, s.retry(p, a, a.error())
	}
	failed, err := truth(ctx, s.failed, a, false)
	if err != nil {
		return Status{}, s.retry(p, a, fmt.Errorf("status.failed: %w", err))
	}
	if failed {
		return Status{}, fault.New(fault.Job, s.reason(ctx, a))
	}
	done, err := truth(ctx, s.done, a, a.status != http.StatusAccepted)
	if err != nil {
		return Status{}, s.retry(p, a, fmt.Errorf("status.done: %w", err))
	}
	if !done {
		return Status{After: s.after(p, a)}, nil
	}
	return s.result(ctx, p, a)
}

// result gives the payload of a job that is done, from the answer to status or by a request of its
// own.
func (s *httpSource) result(ctx context.Context, p Job, a answer) (Status, error) {
	if r := s.config.Result; r != nil && r.URL != "" {
		var err error
		a, err = s.client.do(ctx, call{Request: r.Request, pending: p, resolve: s.resolve})
		switch {
		case err != nil:
			return Status{}, s.retry(p, a, err)
		case !a.ok():
			return Status{}, s.retry(p, a, a.error())
		}
	}
	if s.value == nil {
		return Status{Done: true, Payload: a.value()}, nil
	}
	payload, err := evaluate(ctx, s.value, a.value())
	if err != nil {
		return Status{}, s.retry(p, a, fmt.Errorf("result.value: %w", err))
	}
	return Status{Done: true, Payload: payload}, nil
}

// reason is the message of a job that failed.
func (s *httpSource) reason(ctx context.Context, a answer) string {
	if s.why != nil {
		v, err := evaluate(ctx, s.why, a.value())
		switch {
		case err == nil && kindOf(v) == '"':
			return "the job failed: " + stringOf(v)
		case err == nil && kindOf(v) != 'n':
			return "the job failed: " + excerpt(v)
		}
	}
	return "the job failed: " + excerpt(a.body)
}

func (s *httpSource) Cancel(ctx context.Context, p Job) error {
	if s.config.Cancel == nil || !hasKey(p) {
		return nil
	}
	a, err := s.client.do(ctx, call{Request: *s.config.Cancel, pending: p, resolve: s.resolve})
	if err != nil || a.ok() || a.status == http.StatusNotFound || a.status == http.StatusConflict || a.status == http.StatusGone {
		return err
	}
	return a.error()
}

// retry wraps an error with when to try again, unless it is a fault.
func (s *httpSource) retry(p Job, a answer, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return &RetryError{After: s.after(p, a), Err: err}
}

func (s *httpSource) after(p Job, a answer) time.Duration {
	return s.polling.after(p.Checks, a.retryAfter, s.client.rand)
}

// after says when to ask again: when the server says so, else after the interval, which doubles
// with every check up to the longest, with full jitter between the interval and that.
func (c Polling) after(checks int, retryAfter time.Duration, rand func() float64) time.Duration {
	if retryAfter > 0 {
		return retryAfter
	}
	least, most := time.Duration(c.Interval), time.Duration(c.MaxInterval)
	if least <= 0 {
		least = defaultInterval
	}
	if most < least {
		most = max(defaultMaxInterval, least)
	}
	upper := least
	for i := 0; i <= checks && upper < most; i++ {
		upper *= 2
	}
	return least + time.Duration(rand()*float64(min(upper, most)-least))
}

// evaluate gives the first value of a jq expression; null if there is none.
func evaluate(ctx context.Context, code *gojq.Code, in json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	dec := json.NewDecoder(strings.NewReader(string(in)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	out, ok := code.RunWithContext(ctx, v).Next()
	if err, isError := out.(error); isError {
		return nil, err
	}
	if !ok {
		return json.RawMessage("null"), nil
	}
	return gojq.Marshal(out)
}

// truth evaluates a condition; otherwise is for one that is not configured.
func truth(ctx context.Context, code *gojq.Code, a answer, otherwise bool) (bool, error) {
	if code == nil {
		return otherwise, nil
	}
	v, err := evaluate(ctx, code, a.value())
	return string(v) != "null" && string(v) != "false", err
}
