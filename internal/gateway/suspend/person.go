package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// Reply is a person's answer to a question: an ElicitResult. The key is empty for a task of
// 2025-11-25.
type Reply func(key string, params json.RawMessage) json.RawMessage

// responses returns the answers to inputRequests. It declines questions that no person can answer.
func responses(requests jsonobj.Object, reply Reply) jsonobj.Object {
	return mcp.AnswersTo(requests, func(key, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if method == mcp.AskElicitation {
			return reply(key, params), nil
		}
		return mcp.DefaultAnswer(method)
	})
}

// AsksPerson reports whether a person answers the questions of a server, which then has to wait.
func (s *policy) AsksPerson() bool { return s.hooks.Person && !s.e.Server().ChildProcess }

// askPerson leaves a call whose server asks a question before it does anything.
func (s *policy) askPerson(ctx context.Context, r *mcp.Request, rec *Record, in *wait.Input) (json.RawMessage, error) {
	entry, err := s.hooks.Ledger.Begin(ctx, keyOf(rec.Server, rec.Tool, rec.Arguments))
	if err != nil {
		return nil, fmt.Errorf("the call could not be recorded: %w", err)
	}
	work := &wait.Work{CallID: entry.ID, Server: rec.Server, Tool: rec.Tool, Arguments: rec.Arguments, Input: in}
	if err := s.hooks.Ledger.Started(ctx, work); err != nil {
		return nil, err
	}
	s.hooks.Changed(*work, Suspended)
	rec.Started = true
	return s.shown(r, TextResult(startedText(work), false)), nil
}

// Answer gives a server the answer to its question, over a connection of its own, and then waits
// for the end of the work, as long as the soft wait allows. w is the work as the ledger has it.
// Without an outcome the work goes on, and w is what to wait for: perhaps a further question. The
// errors are those of [FetchAt], ErrTaskLost and ErrUnknown.
func Answer(ctx context.Context, e *gateway.Endpoint, w *wait.Work,
	asked wait.Input, reply Reply) (*wait.WorkResult, error) {
	s, ok := e.Policy().(*policy)
	if !ok {
		return nil, errors.New("only calls of clients that cannot wait are answered for them")
	}
	l, err := e.OwnUpstream(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var outcome *wait.WorkResult
	switch {
	case w.Task != nil:
		outcome, err = s.answerTask(ctx, l, w, asked, reply)
	case w.Input != nil:
		outcome, err = s.answerCall(ctx, l, w, reply)
	}
	if err != nil || outcome != nil || w.Input != nil {
		return outcome, err
	}
	final, err := s.follow(ctx, l, nil, w, s.survivesUs(w))
	switch {
	case errors.Is(err, errLeft):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &final, nil
}

// answerTask answers a task, if it still asks the same question. Without an outcome w.Input is the
// question that it asks then.
func (s *policy) answerTask(ctx context.Context, l *gateway.Upstream,
	w *wait.Work, asked wait.Input, reply Reply) (*wait.WorkResult, error) {
	c, release, err := s.clientOf(ctx, l, w.Task)
	if err != nil {
		return nil, err
	}
	defer release()
	if c == l.Client() {
		l.Keep()
	}
	asking, cancel := context.WithTimeout(ctx, s.hooks.SoftWait)
	defer cancel()
	outcome, err := mcptask.Poll(asking, c, w.Task, s.e.Now(), nil)
	var now *mcptask.InputRequiredError
	if w.Input = nil; errors.As(err, &now) {
		requests, _ := jsonobj.ParseObject(now.Input.Requests)
		switch {
		case !sameKeys(now.Input.Requests, asked.Requests):
			w.Input = &now.Input
			return nil, s.hooks.Ledger.Started(ctx, w)
		case requests != nil:
			err = mcptask.Answer(asking, c, w.Task, responses(requests, reply))
		default:
			outcome, err = mcptask.Poll(asking, c, w.Task, s.e.Now(), onlyOnce(reply))
		}
	}
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = nil // it was answered, and goes on
	}
	if err != nil || outcome != nil {
		return outcome, err
	}
	return nil, s.hooks.Ledger.Started(ctx, w)
}

// onlyOnce answers the first question of a task of 2025-11-25. It declines further questions of the
// same request.
func onlyOnce(reply Reply) mcptask.Asker {
	var answered atomic.Bool
	return func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if method != mcp.AskElicitation || answered.Swap(true) {
			return mcp.DefaultAnswer(method)
		}
		return reply("", params), nil
	}
}

// sameKeys reports whether two sets of requests ask the same questions, since keys are not used
// twice.
func sameKeys(a, b json.RawMessage) bool {
	left, _ := jsonobj.ParseObject(a)
	right, _ := jsonobj.ParseObject(b)
	for _, r := range left {
		if !right.Has(r.Key) {
			return false
		}
	}
	return len(left) == len(right)
}

// answerCall makes a call again, with the answers.
func (s *policy) answerCall(ctx context.Context, l *gateway.Upstream,
	w *wait.Work, reply Reply) (*wait.WorkResult, error) {
	t := s.e.Tools().Find(ctx, l, w.Tool)
	if w.Input.Sent && !l.Offered().Deduplicates && !t.Idempotent {
		return nil, ErrUnknown
	}
	w.Input.Sent = true
	if err := s.hooks.Ledger.Started(ctx, w); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watch := gateway.StartIdleTimer(s.e.Server().CallLimit(), end)
	defer watch.Stop()
	requests, err := jsonobj.ParseObject(w.Input.Requests)
	if err != nil {
		return nil, err
	}
	state := w.Input.State
	for range mcp.MaxRounds {
		params := mcp.WithResponses(jsonobj.Object{{Key: "name", Value: jsonobj.Quote(w.Tool)},
			{Key: "arguments", Value: w.Arguments}}, responses(requests, reply), state)
		result, err := l.Client().Call(ctx, mcp.Call{
			Method: mcp.MethodToolsCall, Params: s.startParams(l, params.JSON(), t, w.CallID),
			Capabilities: s.Capabilities(mcp.Modern, mcp.EmptyObject),
			Notified:     func(string, json.RawMessage) { watch.Reset() },
		})
		var said *mcp.Error
		switch {
		case errors.As(err, &said):
			return &wait.WorkResult{Error: said.JSON()}, nil
		case err != nil:
			return nil, err
		}
		if started, err := s.recordStarted(ctx, l, result, w); started || err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" {
			return &wait.WorkResult{Result: result}, nil
		}
		requests, state = o.Object("inputRequests"), o.Get("requestState") // nothing that a person can answer
	}
	return nil, mcp.ErrRounds
}
