package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// questions are the questions of a task's server, and the ways to ask its client. The task shows
// them in its record.
type questions struct {
	t *task
	// capabilities are the client's.
	capabilities jsonobj.Object
	// direct asks a client that waits for the call; nil asks through the task.
	direct mcptask.Asker
	// posed has one element when there is a question and the client does not know the task yet.
	posed chan struct{}

	mu       sync.Mutex
	open     []*question
	answered map[string]bool // keys of questions of a modern server
}

func newQuestions(t *task) *questions {
	return &questions{t: t, posed: make(chan struct{}, 1), answered: map[string]bool{}}
}

// question is a question of a task's server. A modern client sees it with the task and answers by
// tasks/update. A legacy one is asked while it waits in tasks/result.
type question struct {
	key string
	// request is the question as in inputRequests.
	request json.RawMessage
	// answer takes the answer; nil if the server is told by tasks/update.
	answer chan answer
	asking bool // a legacy client is being asked
	// given is the client's answer, until the server has taken it. It belongs to the caller that has
	// claimed the question.
	given json.RawMessage
}

type answer struct {
	result json.RawMessage
	err    *mcp.Error
}

func newQuestion(method string, params json.RawMessage) *question {
	params = mcp.WithoutMeta(params, append([]string{mcp.MetaRelatedTask}, gateway.HopKeys...)...)
	return &question{key: rand.Text(), request: mcp.InputRequest(method, params), answer: make(chan answer, 1)}
}

// show writes the open questions into the record of the task.
func (q *questions) show(rec *store.MCPTask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if rec.Ended() {
		q.open = nil
	}
	rec.InputRequests = nil
	if len(q.open) == 0 {
		if rec.Status == mcptask.InputRequired {
			rec.Status = mcptask.Working
		}
		return
	}
	rec.Status = mcptask.InputRequired
	var open jsonobj.Object
	for _, one := range q.open {
		open = append(open, jsonobj.Member{Key: one.key, Value: one.request})
	}
	rec.InputRequests = open.JSON()
}

// changed updates the open questions in the record. Questions that are not stored are asked again.
func (q *questions) changed() { _ = q.t.change(func(*store.MCPTask) {}) }

// signal signals that there is a question.
func (q *questions) signal() {
	select {
	case q.posed <- struct{}{}:
	default:
	}
}

// pose adds questions. withdraw removes them.
func (q *questions) pose(added ...*question) {
	q.mu.Lock()
	q.open = append(q.open, added...)
	q.mu.Unlock()
	q.signal()
	q.changed()
}

func (q *questions) withdraw(posed ...*question) {
	q.mu.Lock()
	q.open = slices.DeleteFunc(q.open, func(one *question) bool { return slices.Contains(posed, one) })
	q.mu.Unlock()
	q.changed()
}

// ask has the client answer a question of a legacy server.
func (q *questions) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !mcp.Supports(q.capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	if q.direct != nil {
		return q.direct(ctx, method, mcp.WithoutMeta(params, mcp.MetaRelatedTask))
	}
	one := newQuestion(method, params)
	q.pose(one)
	defer q.withdraw(one)
	return q.awaitAnswer(ctx, one)
}

func (q *questions) awaitAnswer(ctx context.Context, one *question) (json.RawMessage, *mcp.Error) {
	select {
	case a := <-one.answer:
		return a.result, a.err
	case <-q.t.done:
		return nil, mcp.Errorf(mcp.CodeInternal, "the task has ended")
	case <-ctx.Done():
		return mcp.AnswerOf(nil, context.Cause(ctx))
	}
}

// askAll has the client answer the questions that a modern server asks before it answers a call.
// The keys are the server's.
func (q *questions) askAll(ctx context.Context, requests jsonobj.Object) (responses jsonobj.Object, err error) {
	all := make([]*question, len(requests))
	var posed []*question
	for i, m := range requests {
		asked, _ := jsonobj.ParseObject(m.Value)
		all[i] = newQuestion(asked.Text("method"), asked.Get("params"))
		if method := asked.Text("method"); !mcp.Supports(q.capabilities, method) || q.direct != nil {
			result, failed := q.ask(ctx, method, asked.Get("params"))
			all[i].answer <- answer{result, failed}
		} else {
			posed = append(posed, all[i])
		}
	}
	if len(posed) > 0 {
		q.pose(posed...)
		defer q.withdraw(posed...)
	}
	for i, one := range all {
		result, failed := q.awaitAnswer(ctx, one)
		if failed != nil {
			return nil, failed
		}
		responses = append(responses, jsonobj.Member{Key: requests[i].Key, Value: result})
	}
	return responses, nil
}

// replace takes over the questions of a modern server for a task, under the server's keys, each of
// which comes once in a task's life. needed says that the task does not go on without an answer.
func (q *questions) replace(requests jsonobj.Object, needed bool) {
	var open []*question
	fresh := false
	q.mu.Lock()
	for _, m := range requests {
		if q.answered[m.Key] {
			continue
		}
		i := slices.IndexFunc(q.open, func(one *question) bool { return one.key == m.Key })
		if i >= 0 {
			open = append(open, q.open[i])
		} else {
			open = append(open, &question{key: m.Key, request: m.Value})
			fresh = true
		}
	}
	q.open = open
	q.mu.Unlock()
	if fresh {
		q.t.wake() // it may be in the record, from an earlier process
	}
	if needed {
		q.signal()
	}
}

// respond hands in answers by their keys. It ignores answers to questions that are not asked. The
// error is the server's.
func (q *questions) respond(ctx context.Context, responses jsonobj.Object) error {
	forward := q.take(responses)
	if len(forward) == 0 {
		return nil
	}
	if err := q.t.atServer().update(ctx, forward); err != nil {
		return err
	}
	q.mu.Lock()
	for _, m := range forward {
		q.answered[m.Key] = true
	}
	q.open = slices.DeleteFunc(q.open, func(one *question) bool { return q.answered[one.key] })
	q.mu.Unlock()
	q.changed()
	q.t.pollNow()
	return nil
}

// take gives answers to those who wait for them here, and returns those that the server must be
// told.
func (q *questions) take(responses jsonobj.Object) (forward jsonobj.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range responses {
		i := slices.IndexFunc(q.open, func(one *question) bool { return one.key == m.Key })
		switch {
		case i < 0:
		case q.open[i].answer == nil:
			forward = append(forward, m)
		default:
			select {
			case q.open[i].answer <- answer{result: m.Value}:
			default: // it has an answer already
			}
		}
	}
	return forward
}

// claim claims a question that nobody asks yet, to ask it of a legacy client. It returns nil if
// there is none.
func (q *questions) claim() *question {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.open {
		if !one.asking {
			one.asking = true
			return one
		}
	}
	return nil
}

// release gives back a claimed question, so that another waiting client can be asked.
func (q *questions) release(one *question) {
	q.mu.Lock()
	one.asking = false
	q.mu.Unlock()
	q.t.wake()
}

// handIn tells a modern server the answer to a claimed question. If the server cannot be told, the
// answer is kept for the next time. If the server refuses it, the question is asked again.
func (q *questions) handIn(ctx context.Context, one *question) error {
	err := q.respond(ctx, jsonobj.Object{{Key: one.key, Value: one.given}})
	if err == nil {
		return nil
	}
	var said *mcp.Error
	if errors.As(err, &said) && said.Code == mcp.CodeInvalidParams {
		one.given = nil
	}
	q.release(one)
	return err
}

// askIn asks a legacy client in the middle of its tasks/result. It is no error if the task ends
// meanwhile.
func (q *questions) askIn(ctx context.Context, r *mcp.Request, one *question) error {
	if one.given != nil {
		return q.handIn(ctx, one)
	}
	rec, _ := q.t.record()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	asking := make(chan struct{})
	defer func() { <-asking }()
	defer cancel()
	go func() { // waited for above
		defer close(asking)
		select {
		case <-q.t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	asked, _ := jsonobj.ParseObject(one.request)
	params := mcp.WithMeta(asked.Get("params"), mcp.MetaRelatedTask, mcptask.Params(rec.ID))
	var given answer
	given.result, given.err = gateway.AskClient(ctx, q.capabilities, r, asked.Text("method"), params)
	if ctx.Err() != nil {
		q.release(one)
		return nil // the caller finds out why
	}
	if one.answer != nil {
		select {
		case one.answer <- given:
		default: // it has an answer already
		}
		// The asker withdraws it; until then it stays claimed.
		return nil
	}
	if given.err != nil {
		given.result = mcp.CancelAnswer
	}
	one.given = given.result
	return q.handIn(ctx, one)
}

// askDirect asks a client that waits for its call the questions of a modern task.
func (q *questions) askDirect(ctx context.Context) error {
	for one := q.claim(); one != nil; one = q.claim() {
		if one.given == nil {
			asked, _ := jsonobj.ParseObject(one.request)
			given, failed := q.ask(ctx, asked.Text("method"), asked.Get("params"))
			if failed != nil {
				given = mcp.CancelAnswer
			}
			one.given = given
		}
		if err := q.handIn(ctx, one); err != nil {
			return err
		}
	}
	return nil
}
