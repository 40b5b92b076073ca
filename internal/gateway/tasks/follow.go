package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// conclude brings a task to its end after its call: result is nil if its server works on it.
func (t *task) conclude(result json.RawMessage, err error) {
	defer t.cancel()
	end := taskEnd{status: mcptask.Completed, result: result}
	if err == nil && result == nil {
		end, err = t.follow()
	}
	switch {
	case t.s.e.Context().Err() != nil: // another process goes on with it
		return
	case t.ctx.Err() != nil: // whoever ended it has said so
		t.cancelUpstream()
		return
	case err != nil:
		var said *mcp.Error
		if !errors.As(err, &said) {
			said = mcp.Errorf(mcp.CodeInternal, "MCP server %q: %v", t.s.e.Server().Name, err)
		}
		t.fail(said)
		return
	}
	t.finish(func(rec *store.MCPTask) {
		rec.Status, rec.Message, rec.Result, rec.Error = end.status, end.message, end.result, end.err
	})
}

// cancelTimeout is how long a server may take to be told that a task is not wanted any more.
const cancelTimeout = 5 * time.Second

func (t *task) cancelUpstream() {
	t.mu.Lock()
	client, theirs := t.client, t.upstreamTask
	t.mu.Unlock()
	if theirs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.s.e.Context(), cancelTimeout)
	defer cancel()
	_ = mcptask.Cancel(ctx, client, theirs) // one that cannot be told will forget it
}

// taskEnd is how a server's task has ended.
type taskEnd struct {
	status, message string
	result, err     json.RawMessage
}

const (
	// resultGrace is how long a task may be done before its result is there.
	resultGrace = 2 * time.Second
	// shortestPoll is how often a server is asked at most.
	shortestPoll = 50 * time.Millisecond
	// longestRetry is how rarely a server is asked that cannot be reached.
	longestRetry = 30 * time.Second
	// maxRefusals is how often in a row a server may refuse to tell of a task.
	maxRefusals = 5
)

// errNoResult says that a task is done and its result is not there yet.
var errNoResult = errors.New("the task is done, but its result is not there")

// follow asks the server for its task until that has ended. A server that cannot be reached is
// asked again for as long as the task is kept.
func (t *task) follow() (taskEnd, error) {
	var refusals, unreached int
	var since time.Time // the result is missing
	for {
		end, err := t.lookOnce()
		rec, _ := t.record()
		pause := min(max(rec.Poll, shortestPoll), longestRetry)
		var said *mcp.Error
		switch {
		case t.ctx.Err() != nil:
			return taskEnd{}, t.ctx.Err()
		case err == nil && end != nil:
			return *end, nil
		case err == nil:
			refusals, unreached = 0, 0
		case errors.Is(err, errNoResult):
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= resultGrace {
				if errors.As(err, &said) {
					return taskEnd{status: mcptask.Failed, message: said.Message, err: said.JSON()}, nil
				}
				return taskEnd{}, err
			}
			pause = min(pause, resultGrace/8)
		case errors.Is(err, mcp.ErrSessionLost), errors.As(err, &said) && said.Code == mcp.CodeInvalidParams:
			return taskEnd{}, t.lost(err)
		case errors.As(err, &said):
			if refusals++; refusals >= maxRefusals || said.Code == mcp.CodeMethodNotFound {
				return taskEnd{}, fmt.Errorf("it does not tell of the task: %w", said)
			}
		case t.client.Err() != nil:
			return taskEnd{}, err // its process has gone, and the task with it
		default:
			unreached++
			pause = min(max(pause, time.Second/2)<<min(unreached-1, 6), longestRetry)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.poke:
		case <-t.client.Done():
		case <-t.ctx.Done():
		}
		timer.Stop()
	}
}

// lost says that the server has forgotten the task, and what it had said about that.
func (t *task) lost(err error) error {
	until := "for ever"
	if at := t.upstreamTask.ExpiresAt(); !at.IsZero() {
		until = "until " + at.UTC().Format(time.RFC3339)
	}
	return mcp.Errorf(mcp.CodeInternal, "MCP server %q has forgotten the task before its result could be fetched, though it was to keep it %s: %v", t.s.e.Server().Name, until, err)
}

// longestLook is how long a server may take to say how a task is, or to take an answer, if a call
// may take as long.
const longestLook = time.Minute

func (t *task) lookTimeout() time.Duration { return min(longestLook, t.s.e.Server().CallLimit()) }

// lookOnce asks the server once. The end is nil as long as there is none.
func (t *task) lookOnce() (*taskEnd, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.lookTimeout())
	defer cancel()
	result, err := t.client.Call(ctx, mcp.Call{Method: mcp.MethodTasksGet, Params: mcptask.Params(t.upstreamTask.ID), Capabilities: t.declared()})
	if err != nil {
		return nil, err
	}
	var w mcptask.Wire
	if err := json.Unmarshal(result, &w); err != nil || w.Status == "" {
		return nil, mcp.Errorf(mcp.CodeInternal, "the answer to tasks/get is no task: %.200s", result)
	}
	w.Apply(t.upstreamTask)
	if !mcptask.IsStatus(w.Status) {
		unknown := mcptask.UnknownStatus(w.Status)
		return &taskEnd{status: mcptask.Failed, message: unknown.Message, err: unknown.JSON()}, nil
	}
	switch w.Status {
	case mcptask.Completed, mcptask.Failed:
		if t.upstreamTask.Era == mcp.Legacy {
			return t.fetch(ctx, w)
		}
		return modernEnd(w)
	case mcptask.Cancelled:
		return &taskEnd{status: mcptask.Cancelled, message: w.StatusMessage}, nil
	}
	t.setQuestionsOf(w)
	_ = t.change(func(rec *store.MCPTask) { // what is not stored is seen at the next look
		rec.Message = w.StatusMessage
		if poll := w.PollInterval; poll > 0 {
			rec.Poll = time.Duration(poll) * time.Millisecond
		}
	})
	if w.Status == mcptask.InputRequired && t.upstreamTask.Era == mcp.Legacy {
		return t.fetch(t.ctx, w) // what it wants to know it asks while this waits
	}
	if w.Status == mcptask.InputRequired && t.direct != nil {
		return nil, t.askDirect() // which may take as long as a person does
	}
	return nil, nil
}

func (t *task) setQuestionsOf(w mcptask.Wire) {
	if t.upstreamTask.Era != mcp.Modern {
		return
	}
	t.setQuestions(w.InputRequests)
	if w.Status == mcptask.InputRequired {
		select {
		case t.asked <- struct{}{}:
		default:
		}
	}
}

// askDirect asks a client that waits for its call what a modern task wants to know.
func (t *task) askDirect() error {
	for q := t.claim(); q != nil; q = t.claim() {
		if q.given == nil {
			asked, _ := jsonobj.ParseObject(q.request)
			answer, failed := t.ask(t.ctx, asked.Text("method"), asked.Get("params"))
			if failed != nil {
				answer = mcp.CancelAnswer
			}
			q.given = answer
		}
		if err := t.handIn(t.ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// modernEnd reads the end of a task of the extension. A tool that has failed is a failed task in
// the other era.
func modernEnd(w mcptask.Wire) (*taskEnd, error) {
	end := &taskEnd{status: w.Status, message: w.StatusMessage, result: w.Result, err: w.Error}
	if end.result == nil && end.err == nil {
		return nil, errNoResult
	}
	if w.Status == mcptask.Completed {
		end.err = nil
		if o, _ := jsonobj.ParseObject(w.Result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	} else {
		end.result = nil
	}
	return end, nil
}

// fetch gets the payload of a legacy task, and waits for it while the task waits for input.
func (t *task) fetch(ctx context.Context, w mcptask.Wire) (*taskEnd, error) {
	ended := mcptask.IsTerminal(w.Status)
	result, err := t.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksResult, Params: mcptask.Params(t.upstreamTask.ID), Asked: t.ask,
		Notified: func(string, json.RawMessage) {}, // of the task's status we hear otherwise
	})
	var said *mcp.Error
	switch {
	case errors.As(err, &said) && ended && (w.Status == mcptask.Completed || said.Code == mcp.CodeInternal || said.Code == mcp.CodeInvalidParams):
		return nil, fmt.Errorf("%w: %w", errNoResult, said) // it may come yet; in the end it is the error
	case errors.As(err, &said) && ended:
		return &taskEnd{status: mcptask.Failed, message: w.StatusMessage, err: said.JSON()}, nil
	case errors.As(err, &said):
		t.look()
		return nil, nil // it has ended while we waited; how is asked next
	case err != nil:
		return nil, err
	}
	end := &taskEnd{status: w.Status, message: w.StatusMessage, result: mcp.WithoutMeta(result, mcp.MetaRelatedTask, mcptask.MetaForeignRelated)}
	if !ended {
		end.status, end.message = mcptask.Completed, ""
		if o, _ := jsonobj.ParseObject(result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	}
	return end, nil
}
