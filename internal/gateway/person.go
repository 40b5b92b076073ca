package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Input is what a person has to answer before a call or a task goes on.
type Input struct {
	// Requests is what the server asks, its inputRequests. A task of 2025-11-25 has none: its server asks whoever waits for the result, and only
	// once, so that it is asked when the answer is there. Message is what it says meanwhile.
	Requests json.RawMessage `json:"requests,omitempty"`
	Message  string          `json:"message,omitempty"`
	// State is the requestState of a call that has to be made again with the answers.
	State json.RawMessage `json:"requestState,omitempty"`
	// Sent says that such a call was made again. Whether the server has got it is known when there is a result.
	Sent bool `json:"sent,omitempty"`
}

// inputKey tells a question of a task from everything else that may be delivered.
const inputKey = "evalrun.dev/input"

// Payload is the question as it is delivered to a rollout that waits for a task.
func (in *Input) Payload() (json.RawMessage, error) {
	return json.Marshal(map[string]*Input{inputKey: in})
}

// ReadInput reads what [Input.Payload] has written; nil is any other payload.
func ReadInput(payload json.RawMessage) *Input {
	doc, err := jsonobj.ParseObject(payload)
	if err != nil || !doc.Has(inputKey) {
		return nil
	}
	in := &Input{}
	if json.Unmarshal(doc.Get(inputKey), in) != nil {
		return nil
	}
	return in
}

// InputRequiredError says that a task goes on only with an answer.
type InputRequiredError struct{ Input Input }

// Error implements error.
func (e *InputRequiredError) Error() string { return "the task waits for an answer" }

// Questions are the params of those requests that a person can answer, by their keys.
func (in *Input) Questions() (out jsonobj.Object) {
	requests, _ := jsonobj.ParseObject(in.Requests)
	for _, r := range requests {
		if asked, _ := jsonobj.ParseObject(r.Value); asked.Text("method") == askElicitation {
			out = append(out, jsonobj.Member{Key: r.Key, Value: asked.Get("params")})
		}
	}
	return out
}

// Reply is what a person answers to a question: an ElicitResult. The key is empty for a task of 2025-11-25.
type Reply func(key string, params json.RawMessage) json.RawMessage

// responses are the answers to inputRequests. What no person can answer is declined.
func responses(requests jsonobj.Object, reply Reply) jsonobj.Object {
	return answersTo(requests, func(key, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if method == askElicitation {
			return reply(key, params), nil
		}
		return alone(method)
	})
}

// inputOf is what the result of a call asks a person; nil for every other result.
func inputOf(result json.RawMessage) *Input {
	o, err := jsonobj.ParseObject(result)
	if err != nil || o.Text("resultType") != "input_required" {
		return nil
	}
	if in := (&Input{Requests: o.Get("inputRequests"), State: o.Get("requestState")}); in.Questions() != nil {
		return in
	}
	return nil
}

// asksPerson reports whether a person is asked what a server wants to know, which the server then has to wait for.
func (s *supervised) asksPerson() bool { return s.calls.Person && !s.e.server.ChildProcess }

// askPerson leaves a call whose server wants to know something before it does anything.
func (s *supervised) askPerson(ctx context.Context, r *mcp.Request, rec *Record, in *Input) (json.RawMessage, error) {
	entry, err := s.calls.Ledger.Begin(ctx, keyOf(rec.Server, rec.Tool, rec.Arguments))
	if err != nil {
		return nil, fmt.Errorf("the call could not be recorded: %w", err)
	}
	work := &Work{CallID: entry.ID, Server: rec.Server, Tool: rec.Tool, Arguments: rec.Arguments, Input: in}
	if err := s.note(ctx, work); err != nil {
		return nil, err
	}
	if s.calls.Suspended != nil {
		s.calls.Suspended(*work)
	}
	rec.Started = true
	return s.shown(r, TextResult(startedText(work), false)), nil
}

// note records what is known of work.
func (s *supervised) note(ctx context.Context, w *Work) error {
	raw, err := json.Marshal(w)
	if err == nil {
		err = s.calls.Ledger.Started(ctx, w.CallID, raw)
	}
	if err != nil {
		return fmt.Errorf("what was started could not be recorded: %w", err)
	}
	return nil
}

// Answer gives a server the answer to what it asked, over a connection of its own, and then waits for the end of the work, as long as the soft wait
// allows. w is the work as the ledger has it. Without an outcome it goes on, and w is what is to be waited for: perhaps a further question. The errors
// are those of [FetchAt], ErrTaskLost and ErrUnknown.
func Answer(ctx context.Context, e *Endpoint, w *Work, asked Input, reply Reply) (*Outcome, error) {
	s, ok := e.policy.(*supervised)
	if !ok {
		return nil, errors.New("only calls of clients that cannot wait are answered for them")
	}
	l := &link{e: e}
	defer l.close()
	if err := l.connect(ctx); err != nil {
		return nil, &UnreachableError{e.server.Name, err}
	}
	var outcome *Outcome
	var err error
	switch {
	case w.Task != nil:
		outcome, err = s.answerTask(ctx, l, w, asked, reply)
	case w.Input != nil:
		outcome, err = s.answerCall(ctx, l, w, reply)
	}
	if err != nil || outcome != nil || w.Input != nil {
		return outcome, err
	}
	final, err := s.follow(ctx, l, nil, w)
	switch {
	case errors.Is(err, errLeft):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &final, nil
}

// answerTask answers a task, if what it wants to know is what was asked. Without an outcome w.Input is what it wants to know then.
func (s *supervised) answerTask(ctx context.Context, l *link, w *Work, asked Input, reply Reply) (*Outcome, error) {
	c, leave, err := s.clientOf(ctx, l, w.Task)
	if err != nil {
		return nil, err
	}
	defer leave()
	if c == l.client() {
		l.keep()
	}
	asking, cancel := context.WithTimeout(ctx, s.calls.SoftWait)
	defer cancel()
	outcome, err := Poll(asking, c, w.Task, nil)
	var now *InputRequiredError
	if w.Input = nil; errors.As(err, &now) {
		requests, _ := jsonobj.ParseObject(now.Input.Requests)
		switch {
		case !sameKeys(now.Input.Requests, asked.Requests):
			w.Input = &now.Input
			return nil, s.note(ctx, w)
		case requests != nil:
			err = updateTask(asking, c, w.Task, responses(requests, reply))
		default:
			outcome, err = Poll(asking, c, w.Task, onlyOnce(reply))
		}
	}
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		err = nil // it was answered, and goes on
	}
	if err != nil || outcome != nil {
		return outcome, err
	}
	return nil, s.note(ctx, w)
}

// onlyOnce answers the first question of a task of 2025-11-25. What it asks further in the same breath is declined.
func onlyOnce(reply Reply) Asker {
	var answered atomic.Bool
	return func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if method != askElicitation || answered.Swap(true) {
			return alone(method)
		}
		return reply("", params), nil
	}
}

// sameKeys reports whether two sets of requests ask the same: keys are not used twice.
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
func (s *supervised) answerCall(ctx context.Context, l *link, w *Work, reply Reply) (*Outcome, error) {
	t := l.known(ctx, w.Tool)
	if w.Input.Sent && !l.offered().deduplicates && !t.idempotent {
		return nil, ErrUnknown
	}
	w.Input.Sent = true
	if err := s.note(ctx, w); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watch := s.e.watch(end)
	defer watch.stop()
	requests, err := jsonobj.ParseObject(w.Input.Requests)
	if err != nil {
		return nil, err
	}
	state := w.Input.State
	for range maxRounds {
		params := withResponses(jsonobj.Object{{Key: "name", Value: jsonobj.Quote(w.Tool)}, {Key: "arguments", Value: w.Arguments}}, responses(requests, reply), state)
		result, err := l.client().Call(ctx, mcp.Call{
			Method: mcp.MethodToolsCall, Params: s.startParams(l, params.JSON(), t, w.CallID), Capabilities: s.capabilities(mcp.Modern, emptyObject),
			Notified: func(string, json.RawMessage) { watch.heard() },
		})
		var said *mcp.Error
		switch {
		case errors.As(err, &said):
			return &Outcome{Error: said.JSON()}, nil
		case err != nil:
			return nil, err
		case s.startedBy(l, result, w):
			return nil, s.note(ctx, w)
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" {
			return &Outcome{Result: result}, nil
		}
		requests, state = o.Object("inputRequests"), o.Get("requestState") // nothing that a person can answer
	}
	return nil, errRounds
}

// startedBy notes in w what the result of its call has started, or asks; false if it is a final one.
func (s *supervised) startedBy(l *link, result json.RawMessage, w *Work) bool {
	w.Input = nil
	if w.Task = taskOf(result, l.client(), s.e.now()); w.Task == nil && l.offered().jobs > 0 {
		w.Job = jobOf(result)
	}
	if w.Task == nil && w.Job == nil && s.asksPerson() {
		w.Input = inputOf(result)
	}
	if w.Task != nil {
		l.keep() // whatever becomes of us, the task is in this session
	}
	return w.Task != nil || w.Job != nil || w.Input != nil
}
