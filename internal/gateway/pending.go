package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// pendingCall is a call at a legacy server that a modern client has made. The server asks while it works; the client is asked by the result of its
// request, and answers with a further request. In between the call waits here.
type pendingCall struct {
	id    string
	ctx   context.Context // ends with the call at the server
	watch *IdleTimer
	done  chan struct{} // closed when result and err are there
	fresh chan struct{} // has one element when there is a question that the client was not asked
	taken chan struct{} // closed when the client has the result
	end   context.CancelCauseFunc

	mu sync.Mutex
	// notified is that of the request that waits now; nil between two.
	notified func(method string, params json.RawMessage)
	open     []*question // in the order in which they came
	result   json.RawMessage
	err      error
}

// question is something that the server asks.
type question struct {
	key    string
	ask    json.RawMessage // as in inputRequests
	answer chan json.RawMessage
}

const (
	// gather is how long further questions are waited for: some servers ask several at once, and a client would rather be asked once.
	gather = 10 * time.Millisecond
	// answerTimeout is how long a client may take to come back with answers.
	answerTimeout = time.Hour
)

var errUnanswered = errors.New("the client has not answered in time")

// callPending calls a legacy server for a modern client.
func (l *Upstream) callPending(ctx context.Context, c *mcp.Client, f *InFlightCall, call mcp.Call) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(call.Params)
	if err != nil {
		return c.Call(ctx, call)
	}
	if state := params.Text("requestState"); state != "" {
		p, err := l.e.resumePending(state, call.Notified, params.Object("inputResponses"))
		if err != nil {
			return nil, err
		}
		return l.e.awaitPending(ctx, p)
	}
	if !mcp.Supports(f.Capabilities, mcp.AskElicitation) && !mcp.Supports(f.Capabilities, mcp.AskSampling) && !mcp.Supports(f.Capabilities, mcp.AskRoots) {
		call.Asked = f.Answer
		defer l.Track(f)()
		return c.Call(ctx, call)
	}
	p := &pendingCall{id: rand.Text(), done: make(chan struct{}), fresh: make(chan struct{}, 1), taken: make(chan struct{}), notified: call.Notified}
	p.ctx, p.end = context.WithCancelCause(l.e.ctx)
	p.watch = l.e.StartIdleTimer(p.end)
	call.Notified = func(method string, params json.RawMessage) {
		p.watch.Reset()
		p.mu.Lock()
		notified := p.notified
		p.mu.Unlock()
		if notified != nil {
			notified(method, params)
		}
	}
	f.Notified, f.Ask = call.Notified, p.ask
	call.Asked = f.Answer
	leave := l.Track(f)
	l.e.running.Go(func() {
		defer p.watch.Stop()
		result, err := c.Call(p.ctx, call)
		leave()
		p.mu.Lock()
		p.result, p.err = result, err
		p.mu.Unlock()
		close(p.done)
		if p.ctx.Err() == nil { // else nobody comes for it
			forgotten := time.NewTimer(answerTimeout)
			defer forgotten.Stop()
			select {
			case <-p.taken:
			case <-forgotten.C:
			case <-p.ctx.Done():
			}
		}
		l.e.park(p, false)
		p.end(nil)
	})
	return l.e.awaitPending(ctx, p)
}

// park keeps a call for the further request of its client, or does not any more.
func (e *Endpoint) park(p *pendingCall, waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waits {
		e.pending[p.id] = p
	} else {
		delete(e.pending, p.id)
	}
}

// ask puts a question to the client and waits for its answer.
func (p *pendingCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	ask := jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}}
	if params != nil {
		ask = ask.Set("params", params)
	}
	q := &question{key: rand.Text(), ask: ask.JSON(), answer: make(chan json.RawMessage, 1)}
	p.watch.Pause()
	defer p.watch.Resume()
	p.mu.Lock()
	p.open = append(p.open, q)
	p.mu.Unlock()
	select {
	case p.fresh <- struct{}{}:
	default:
	}
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	select {
	case answer := <-q.answer:
		return answer, nil
	case <-late.C:
		p.end(errUnanswered)
		return mcp.AnswerOf(nil, errUnanswered)
	case <-ctx.Done(): // the server does not want to know any more
		p.mu.Lock()
		p.open = slices.DeleteFunc(p.open, func(other *question) bool { return other == q })
		p.mu.Unlock()
		return mcp.AnswerOf(nil, context.Cause(ctx))
	}
}

// questions are those that are open, as a result that asks them. No request waits for the call then until its client comes back.
func (p *pendingCall) questions() json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) == 0 {
		return nil
	}
	p.notified = nil
	var asks jsonobj.Object
	for _, q := range p.open {
		asks = append(asks, jsonobj.Member{Key: q.key, Value: q.ask})
	}
	return jsonobj.Object{
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)}, {Key: "inputRequests", Value: asks.JSON()}, {Key: "requestState", Value: jsonobj.Quote(p.id)},
	}.JSON()
}

// awaitPending waits for the end of the call or for questions. A client that goes in between ends the call.
func (e *Endpoint) awaitPending(ctx context.Context, p *pendingCall) (json.RawMessage, error) {
	for {
		select {
		case <-p.done:
			p.mu.Lock()
			defer p.mu.Unlock()
			close(p.taken)
			return p.result, p.err
		case <-p.fresh:
			more := time.NewTimer(gather)
			select {
			case <-more.C:
			case <-p.done:
			}
			more.Stop()
			e.park(p, true)
			if asks := p.questions(); asks != nil {
				return asks, nil
			}
			e.park(p, false) // the server has withdrawn them
		case <-ctx.Done():
			p.end(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

// resumePending hands in what the client has answered. What it has not answered it is asked again.
func (e *Endpoint) resumePending(id string, notified func(string, json.RawMessage), responses jsonobj.Object) (*pendingCall, error) {
	e.mu.Lock()
	p := e.pending[id]
	delete(e.pending, id)
	e.mu.Unlock()
	if p == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "requestState: no call waits for this")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notified = notified
	p.open = slices.DeleteFunc(p.open, func(q *question) bool {
		answer := responses.Get(q.key)
		if answer != nil {
			q.answer <- answer
		}
		return answer != nil
	})
	if len(p.open) > 0 {
		select {
		case p.fresh <- struct{}{}:
		default:
		}
	}
	return p, nil
}
