package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// resultGrace is how long a task may be done before its result is there.
	resultGrace = 2 * time.Second
	// shortestPoll is the shortest time between two polls of a server.
	shortestPoll = 50 * time.Millisecond
	// longestRetry is the longest time between two polls of a server that cannot be reached.
	longestRetry = 30 * time.Second
	// maxRefusals is how often in a row a server may refuse to tell of a task.
	maxRefusals = 5
)

// conclude brings a task to its end after its call. result is nil if its server works on it.
func (t *task) conclude(result json.RawMessage, err error) {
	defer t.cancel()
	end := taskEnd{status: mcptask.Completed, result: result}
	if err == nil && result == nil {
		end, err = t.follow(t.atServer())
	}
	switch {
	case t.s.e.Context().Err() != nil: // another process goes on with it
		return
	case t.ctx.Err() != nil: // whoever ended it has said so
		if u := t.atServer(); u != nil {
			u.cancel(t.s.e.Context())
		}
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

// follow polls the server for its task until the task has ended. It asks a server that cannot be
// reached again for as long as the task is kept.
func (t *task) follow(u *upstreamTask) (taskEnd, error) {
	var refusals, unreached int
	var since time.Time // since when the result is missing
	for {
		end, err := t.poll(u)
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
			return taskEnd{}, u.lost(err)
		case errors.As(err, &said):
			if refusals++; refusals >= maxRefusals || said.Code == mcp.CodeMethodNotFound {
				return taskEnd{}, fmt.Errorf("it does not tell of the task: %w", said)
			}
		case u.client.Err() != nil:
			return taskEnd{}, err // the server's process has gone, and the task with it
		default:
			unreached++
			pause = min(max(pause, time.Second/2)<<min(unreached-1, 6), longestRetry)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.due:
		case <-u.client.Done():
		case <-t.ctx.Done():
		}
		timer.Stop()
	}
}

// pollNow makes the server be polled now.
func (t *task) pollNow() {
	select {
	case t.due <- struct{}{}:
	default:
	}
}

// poll polls the server once. The end is nil as long as there is none.
func (t *task) poll(u *upstreamTask) (*taskEnd, error) {
	ctx, cancel := context.WithTimeout(t.ctx, u.timeout())
	defer cancel()
	w, err := u.get(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case !mcptask.IsStatus(w.Status):
		unknown := mcptask.UnknownStatus(w.Status)
		return &taskEnd{status: mcptask.Failed, message: unknown.Message, err: unknown.JSON()}, nil
	case w.Status == mcptask.Cancelled:
		return &taskEnd{status: mcptask.Cancelled, message: w.StatusMessage}, nil
	case mcptask.IsTerminal(w.Status):
		return u.end(ctx, w, t.questions.ask)
	}
	needsInput := w.Status == mcptask.InputRequired
	if u.handle.Era == mcp.Modern {
		t.questions.replace(w.InputRequests, needsInput)
	}
	_ = t.change(func(rec *store.MCPTask) { // a change that is not stored is seen at the next poll
		rec.Message = w.StatusMessage
		if poll := w.PollInterval; poll > 0 {
			rec.Poll = time.Duration(poll) * time.Millisecond
		}
	})
	switch {
	case needsInput && u.handle.Era == mcp.Legacy:
		end, err := u.result(t.ctx, w, t.questions.ask) // the server asks its questions while this waits
		if end == nil && err == nil {
			t.pollNow()
		}
		return end, err
	case needsInput && t.questions.direct != nil:
		return nil, t.questions.askDirect(t.ctx) // this may take as long as a person does
	}
	return nil, nil
}
