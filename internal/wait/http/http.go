// Package http is the source of jobs behind an HTTP API, which the eval set describes by requests
// and jq expressions. Package httpcall sends and repeats the requests.
package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jq"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// source implements wait.Source.
type source struct {
	httpcall.Caller
	config Config
	// The compiled jq expressions; nil where none is configured.
	startKey, findKey, done, failed, why, value *jq.Expression
}

// New returns the source for one entry of the eval set's jobs. The error names an expression that
// does not compile.
func New(c httpcall.Caller, config Config) (wait.Source, error) {
	if config.StartKind == "" {
		config.StartKind = wait.AtMostOnce
	}
	s := &source{Caller: c, config: config}
	expressions := map[**jq.Expression]string{
		&s.startKey: config.ItemKey, &s.done: config.Status.Done, &s.failed: config.Status.Failed,
		&s.why: config.Status.Error,
	}
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
		if *code, err = jq.Compile(expression); err != nil {
			return nil, fmt.Errorf("the jq expression %s: %w", expression, err)
		}
	}
	return s, nil
}

// StartKind implements wait.Source. It is configured.
func (s *source) StartKind() wait.Start { return s.config.StartKind }

// Start starts a job. A searchable one is looked for first, so that calling Start again is safe for
// it as it is for an idempotent one. For an atMostOnce one every failure after the request has left
// is final.
func (s *source) Start(ctx context.Context, j wait.Job) (string, error) {
	if s.config.Start == nil {
		return "", fault.New(fault.Job, "the process has no start request in the eval set's jobs")
	}
	if s.config.StartKind == wait.Searchable {
		if key, found, err := s.Find(ctx, j); found || err != nil {
			return key, wait.NotStarted(err)
		}
	}
	q := httpcall.Call{Request: *s.config.Start, Job: j, Starts: true}
	if len(q.Body) == 0 && q.Method != http.MethodGet && q.Method != http.MethodHead {
		q.Body = defaultBody
	}
	failpoint.Hit("trigger.starting")
	if err := j.MayStart(s.Now()); err != nil {
		return "", err
	}
	switch s.config.StartKind {
	case wait.Idempotent:
		q.KeyHeader = s.config.IdempotencyHeader
	case wait.AtMostOnce:
		ctx = context.WithoutCancel(ctx) // nobody can know whether a request that was broken off has started a job
	}
	a, err := s.Do(ctx, q)
	switch {
	case err != nil && a.Sent && s.config.StartKind == wait.AtMostOnce:
		return "", fault.New(fault.StartUnknown, "the job may or may not have been started: "+err.Error())
	case err != nil && !a.Sent:
		return "", wait.NotStarted(s.Retry(j, a, err))
	case err != nil:
		return "", s.Retry(j, a, err)
	case a.OK(): // an answer is read, also if we are to stop
		return s.startedKey(context.WithoutCancel(ctx), j, a)
	case a.Status >= 500 && a.Status != http.StatusServiceUnavailable && s.config.StartKind == wait.AtMostOnce:
		return "", fault.New(fault.StartUnknown, "the job may or may not have been started: "+a.Err().Error())
	case retry.Temporary(a.Status):
		return "", s.Retry(j, a, a.Err())
	}
	return "", fault.New(fault.Job, "the job could not be started: "+a.Err().Error())
}

var defaultBody = json.RawMessage(
	`{"key":"{triggerId}","process":"{process}","folderPath":"{folderPath}","inputArguments":"{inputArguments}"}`)

// startedKey reads the key of a job from the answer to its start. Without an expression the key is
// the one that the job was given.
func (s *source) startedKey(ctx context.Context, j wait.Job, a httpcall.Answer) (string, error) {
	if s.startKey == nil {
		return j.TriggerID, nil
	}
	key, err := s.key(ctx, s.startKey, a)
	if err == nil && key == "" {
		err = errors.New("it gives nothing")
	}
	if err != nil {
		return "", fault.Newf(fault.StartUnknown,
			"the job was started, but its key could not be read with itemKey %s: %s; the answer was %s",
			s.config.ItemKey, err, jsonvalue.Excerpt(a.Body))
	}
	return key, nil
}

// key evaluates an expression whose value is a string, a number, or null for none.
func (s *source) key(ctx context.Context, expression *jq.Expression, a httpcall.Answer) (string, error) {
	v, err := expression.Value(ctx, a.Value())
	if err != nil {
		return "", err
	}
	switch jsonvalue.KindOf(v) {
	case '"':
		return jsonvalue.String(v), nil
	case '0':
		return string(v), nil
	case 'n', 0:
		return "", nil
	}
	return "", fmt.Errorf("expected a string or a number, got %s", jsonvalue.KindName(v))
}

// Find implements wait.Source.
func (s *source) Find(ctx context.Context, j wait.Job) (string, bool, error) {
	if s.config.Find == nil || s.findKey == nil {
		return "", false, wait.ErrNoFind
	}
	a, err := s.Do(ctx, httpcall.Call{Request: s.config.Find.Request, Job: j})
	switch {
	case err != nil:
		return "", false, s.Retry(j, a, err)
	case a.Status == http.StatusNotFound:
		return "", false, nil
	case !a.OK():
		return "", false, s.Retry(j, a, a.Err())
	}
	key, err := s.key(ctx, s.findKey, a)
	if err != nil {
		return "", false, s.Retry(j, a, fmt.Errorf("find.itemKey %s: %w", s.config.Find.ItemKey, err))
	}
	return key, key != "", nil
}

// Check implements wait.Source.
func (s *source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	status, err := s.check(ctx, j)
	var f *fault.Fault
	if errors.As(err, &f) {
		return wait.Status{Done: true, Fault: f}, nil
	}
	return status, err
}

func (s *source) check(ctx context.Context, j wait.Job) (wait.Status, error) {
	a, err := s.Do(ctx, httpcall.Call{Request: s.config.Status.Request, Job: j})
	if err := s.CheckErr(j, a, err); err != nil {
		return wait.Status{}, err
	}
	reading := context.WithoutCancel(ctx) // as after a start
	failed, err := truth(reading, s.failed, a, false)
	if err != nil {
		return wait.Status{}, s.Retry(j, a, fmt.Errorf("status.failed: %w", err))
	}
	if failed {
		return wait.Status{}, fault.New(fault.Job, s.reason(reading, a))
	}
	done, err := truth(reading, s.done, a, a.Status != http.StatusAccepted)
	if err != nil {
		return wait.Status{}, s.Retry(j, a, fmt.Errorf("status.done: %w", err))
	}
	if !done {
		return wait.Status{After: s.After(j, a)}, nil
	}
	return s.result(ctx, j, a)
}

// result gives the payload of a job that is done, from the answer to status or by a request of its
// own.
func (s *source) result(ctx context.Context, j wait.Job, a httpcall.Answer) (wait.Status, error) {
	if r := s.config.Result; r != nil && r.URL != "" {
		var err error
		a, err = s.Do(ctx, httpcall.Call{Request: r.Request, Job: j})
		switch {
		case err != nil:
			return wait.Status{}, s.Retry(j, a, err)
		case !a.OK():
			return wait.Status{}, s.Retry(j, a, a.Err())
		}
	}
	if s.value == nil {
		return wait.Status{Done: true, Payload: a.Value()}, nil
	}
	payload, err := s.value.Value(context.WithoutCancel(ctx), a.Value())
	if err != nil {
		return wait.Status{}, s.Retry(j, a, fmt.Errorf("result.value: %w", err))
	}
	return wait.Status{Done: true, Payload: payload}, nil
}

// reason is the message of a job that failed.
func (s *source) reason(ctx context.Context, a httpcall.Answer) string {
	if s.why != nil {
		v, err := s.why.Value(ctx, a.Value())
		switch {
		case err == nil && jsonvalue.KindOf(v) == '"':
			return "the job failed: " + jsonvalue.String(v)
		case err == nil && jsonvalue.KindOf(v) != 'n':
			return "the job failed: " + jsonvalue.Excerpt(v)
		}
	}
	return "the job failed: " + jsonvalue.Excerpt(a.Body)
}

// Cancel implements wait.Source.
func (s *source) Cancel(ctx context.Context, j wait.Job) error {
	if s.config.Cancel == nil || !j.HasKey() {
		return nil
	}
	return httpcall.CancelErr(s.Do(ctx, httpcall.Call{Request: *s.config.Cancel, Job: j}))
}

// truth evaluates a condition; otherwise is for one that is not configured.
func truth(ctx context.Context, condition *jq.Expression, a httpcall.Answer, otherwise bool) (bool, error) {
	if condition == nil {
		return otherwise, nil
	}
	return condition.Truth(ctx, a.Value())
}
