package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
)

// Watch is what is needed to ask for a task, beside its id. It is stored with a trigger: URL and
// Headers hold ${VAR}, and no value of one.
type Watch struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Interface
	// Answered identifies what the task has asked and was answered: as long as it asks that, the
	// answer has not been taken up.
	Answered string `json:"answered,omitempty"`
	// Interval is how often it is asked for at first.
	Interval wait.Duration `json:"interval,omitzero"`
}

// GoesOn reports whether a task is still at work after what it has asked was answered.
func (t Task) GoesOn(answered string) bool {
	return t.Status.State.GoesOn() || answered != "" && t.Question() == answered
}

// source asks for the tasks of agents that are at work.
type source struct {
	wait.Begun
	peer  Peer
	watch Watch
}

// NewSource returns the source for what a trigger watches.
func NewSource(c httpcall.Caller, watch json.RawMessage) (wait.Source, error) {
	s := source{peer: Peer{Caller: c}}
	if err := json.Unmarshal(watch, &s.watch); err != nil {
		return nil, fmt.Errorf("what the trigger watches: %w", err)
	}
	s.peer.URL, s.peer.Headers, s.peer.Polling.Interval = s.watch.URL, s.watch.Headers, s.watch.Interval
	return s, nil
}

// Check implements wait.Source. The payload is the task, whatever it has come to.
func (s source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	t, err := s.peer.Get(ctx, s.watch.Interface, j.ItemKey)
	var f *fault.Fault
	switch e := asError(err); {
	case errors.As(err, &f):
		return wait.Status{Done: true, Fault: fault.New(fault.Job, f.Message)}, nil
	case e != nil && e.Code == codeTaskNotFound:
		return wait.Status{Done: true, Fault: fault.Newf(fault.JobLost, "the agent does not know its task %s any more: %v",
			j.ItemKey, e)}, nil
	case e != nil && e.Temporary:
		after := max(s.peer.After(j, httpcall.Answer{RetryAfter: e.After}), 0)
		return wait.Status{}, &wait.RetryError{After: after, Err: e}
	case e != nil:
		return wait.Status{Done: true, Fault: fault.New(fault.Job, e.Error())}, nil
	case err != nil:
		return wait.Status{}, err
	case t.GoesOn(s.watch.Answered):
		return wait.Status{After: max(s.peer.After(j, httpcall.Answer{}), time.Millisecond)}, nil
	}
	return wait.Status{Done: true, Payload: t.Raw}, nil
}

// Cancel implements wait.Source.
func (s source) Cancel(ctx context.Context, j wait.Job) error {
	return s.peer.Cancel(ctx, s.watch.Interface, j.ItemKey)
}

func asError(err error) *httpcall.Error {
	var e *httpcall.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
