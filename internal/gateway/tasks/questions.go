package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// taskQuestion is something that the server of a task wants to know. A modern client sees it with
// the task and answers by tasks/update; a legacy one is asked while it waits in tasks/result.
type taskQuestion struct {
	key string
	// request is the question as in inputRequests.
	request json.RawMessage
	// answer takes the answer; nil if the server is told by tasks/update.
	answer chan taskAnswer
	asking bool // a legacy client is being asked
	// given is what it has answered, until the server has taken that. It is of who has claimed the
	// question.
	given json.RawMessage
}

type taskAnswer struct {
	result json.RawMessage
	err    *mcp.Error
}

func newQuestion(method string, params json.RawMessage) *taskQuestion {
	request := jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}}
	if params != nil {
		request = request.Set("params", mcp.WithoutMeta(params, append([]string{mcp.MetaRelatedTask}, gateway.HopKeys...)...))
	}
	return &taskQuestion{key: rand.Text(), request: request.JSON(), answer: make(chan taskAnswer, 1)}
}

// showQuestions makes the record say what is open.
func (t *task) showQuestions(rec *store.MCPTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rec.Ended() {
		t.questions = nil
	}
	rec.InputRequests = nil
	if len(t.questions) == 0 {
		if rec.Status == mcptask.InputRequired {
			rec.Status = mcptask.Working
		}
		return
	}
	rec.Status = mcptask.InputRequired
	var open jsonobj.Object
	for _, q := range t.questions {
		open = append(open, jsonobj.Member{Key: q.key, Value: q.request})
	}
	rec.InputRequests = open.JSON()
}

// pose adds questions, and withdraw takes them back.
func (t *task) pose(questions ...*taskQuestion) {
	t.mu.Lock()
	t.questions = append(t.questions, questions...)
	t.mu.Unlock()
	select {
	case t.asked <- struct{}{}:
	default:
	}
	_ = t.change(func(*store.MCPTask) {}) // what is not stored is asked for again
}

func (t *task) withdraw(questions ...*taskQuestion) {
	t.mu.Lock()
	t.questions = slices.DeleteFunc(t.questions, func(q *taskQuestion) bool { return slices.Contains(questions, q) })
	t.mu.Unlock()
	_ = t.change(func(*store.MCPTask) {}) // as above
}

// ask has the client answer a question of a legacy server.
func (t *task) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !mcp.Supports(t.capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	t.idle.Pause()
	defer t.idle.Resume()
	if t.direct != nil {
		return t.direct(ctx, method, mcp.WithoutMeta(params, mcp.MetaRelatedTask))
	}
	q := newQuestion(method, params)
	t.pose(q)
	defer t.withdraw(q)
	return t.awaitAnswer(ctx, q)
}

func (t *task) awaitAnswer(ctx context.Context, q *taskQuestion) (json.RawMessage, *mcp.Error) {
	select {
	case a := <-q.answer:
		return a.result, a.err
	case <-t.done:
		return nil, mcp.Errorf(mcp.CodeInternal, "the task has ended")
	case <-ctx.Done():
		return mcp.AnswerOf(nil, context.Cause(ctx))
	}
}

// askAll has the client answer what a modern server wants to know before it answers a call. The
// keys are the server's.
func (t *task) askAll(ctx context.Context, requests jsonobj.Object) (responses jsonobj.Object, err error) {
	questions := make([]*taskQuestion, len(requests))
	var open []*taskQuestion
	for i, m := range requests {
		asked, _ := jsonobj.ParseObject(m.Value)
		questions[i] = newQuestion(asked.Text("method"), asked.Get("params"))
		if method := asked.Text("method"); !mcp.Supports(t.capabilities, method) || t.direct != nil {
			result, failed := t.ask(ctx, method, asked.Get("params"))
			questions[i].answer <- taskAnswer{result, failed}
		} else {
			open = append(open, questions[i])
		}
	}
	if len(open) > 0 {
		t.pose(open...)
		defer t.withdraw(open...)
	}
	for i, q := range questions {
		result, failed := t.awaitAnswer(ctx, q)
		if failed != nil {
			return nil, failed
		}
		responses = append(responses, jsonobj.Member{Key: requests[i].Key, Value: result})
	}
	return responses, nil
}

// setQuestions takes over what a modern server wants to know for a task, under its own keys, which
// come once in a task's life.
func (t *task) setQuestions(requests jsonobj.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var open []*taskQuestion
	for _, m := range requests {
		if t.answered[m.Key] {
			continue
		}
		i := slices.IndexFunc(t.questions, func(q *taskQuestion) bool { return q.key == m.Key })
		if i >= 0 {
			open = append(open, t.questions[i])
		} else {
			open = append(open, &taskQuestion{key: m.Key, request: m.Value})
			t.wake() // it may be in the record, from an earlier process
		}
	}
	t.questions = open
}

// respond hands in answers by their keys. Those to what is not asked are ignored. The error is the
// server's.
func (t *task) respond(ctx context.Context, responses jsonobj.Object) error {
	var forward jsonobj.Object
	t.mu.Lock()
	for _, m := range responses {
		i := slices.IndexFunc(t.questions, func(q *taskQuestion) bool { return q.key == m.Key })
		switch {
		case i < 0:
		case t.questions[i].answer == nil:
			forward = append(forward, m)
		default:
			select {
			case t.questions[i].answer <- taskAnswer{result: m.Value}:
			default: // it has one
			}
		}
	}
	client, theirs := t.client, t.upstreamTask
	t.mu.Unlock()
	if len(forward) == 0 {
		return nil
	}
	params := jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(theirs.ID)}, {Key: "inputResponses", Value: forward.JSON()}}
	ctx, cancel := context.WithTimeout(ctx, t.lookTimeout())
	defer cancel()
	if _, err := client.Call(ctx, mcp.Call{Method: mcp.MethodTasksUpdate, Params: params.JSON(), Capabilities: t.declared()}); err != nil {
		return err
	}
	t.mu.Lock()
	for _, m := range forward {
		t.answered[m.Key] = true
	}
	t.questions = slices.DeleteFunc(t.questions, func(q *taskQuestion) bool { return t.answered[q.key] })
	t.mu.Unlock()
	_ = t.change(func(*store.MCPTask) {}) // what is not stored is seen at the next look
	t.look()
	return nil
}

// look has the server asked now.
func (t *task) look() {
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

// claim takes a question to ask a legacy client, one that nobody asks; nil if there is none.
func (t *task) claim() *taskQuestion {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.questions {
		if !q.asking {
			q.asking = true
			return q
		}
	}
	return nil
}

// release gives back a question that was claimed, for whoever waits to ask it.
func (t *task) release(q *taskQuestion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q.asking = false
	t.wake()
}

// handIn tells a modern server what was answered to a question that is claimed. If it cannot be
// told the answer is kept for the next time; what it refuses is asked again.
func (t *task) handIn(ctx context.Context, q *taskQuestion) error {
	err := t.respond(ctx, jsonobj.Object{{Key: q.key, Value: q.given}})
	if err == nil {
		return nil
	}
	var said *mcp.Error
	if errors.As(err, &said) && said.Code == mcp.CodeInvalidParams {
		q.given = nil
	}
	t.release(q)
	return err
}

// askIn asks a legacy client in the middle of its tasks/result. It is no error if the task ends
// meanwhile.
func (t *task) askIn(ctx context.Context, r *mcp.Request, q *taskQuestion) error {
	if q.given != nil {
		return t.handIn(ctx, q)
	}
	rec, _ := t.record()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asking := make(chan struct{})
	defer func() { <-asking }()
	defer cancel()
	go func() { // waited for above
		defer close(asking)
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	asked, _ := jsonobj.ParseObject(q.request)
	method := asked.Text("method")
	params := mcp.WithMeta(asked.Get("params"), mcp.MetaRelatedTask, mcptask.Params(rec.ID))
	var answer taskAnswer
	if mcp.Supports(t.capabilities, method) {
		answer.result, answer.err = mcp.AnswerOf(r.Ask(ctx, method, params))
	} else {
		answer.result, answer.err = mcp.DefaultAnswer(method)
	}
	if ctx.Err() != nil {
		t.release(q)
		return nil // the caller looks why
	}
	if q.answer != nil {
		select {
		case q.answer <- answer:
		default: // it has one
		}
		// It is withdrawn by who has asked; until then it stays claimed.
		return nil
	}
	if answer.err != nil {
		answer.result = mcp.CancelAnswer
	}
	q.given = answer.result
	return t.handIn(ctx, q)
}
