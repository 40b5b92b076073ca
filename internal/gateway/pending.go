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

// pendingCall is a call at a legacy server that a modern client has made. The server asks while it
// works. The client gets the questions as the result of its request, and answers with a further
// request. In between the call waits here.
type pendingCall struct {
	id    string
	ctx   context.Context // ends with the call at the server
	idle  *IdleTimer
	done  chan struct{} // closed when result and err are set
	fresh chan struct{} // has one element when there is a question that the client was not asked
	taken chan struct{} // closed when the client has the result
	end   context.CancelCauseFunc

	mu sync.Mutex
	// notified belongs to the request that waits now. It is nil between two requests.
	notified func(method string, params json.RawMessage)
	open     []*question // in the order in which they came
	result   json.RawMessage
	err      error
}

// question is a question of the server.
type question struct {
	key    string
	ask    json.RawMessage // as in inputRequests
	answer chan json.RawMessage
}

const (
	// gather is how long to wait for further questions. Some servers ask several at once, and a client
	// would rather be asked once.
	gather = 10 * time.Millisecond
	// answerTimeout is how long a client may take to come back with answers.
	answerTimeout = time.Hour
)

var errUnanswered = errors.New("the client has not answered in time")

// callPending calls a legacy server for a modern client.
func (x *exchange) callPending(ctx context.Context, call mcp.Call) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(call.Params)
	if err != nil {
		return x.client.Call(ctx, call)
	}
	e := x.l.e
	if state := params.Text("requestState"); state != "" {
		p, err := e.parked.resume(state, call.Notified, params.Object("inputResponses"))
		if err != nil {
			return nil, err
		}
		return p.await(ctx, &e.parked)
	}
	f := x.call
	if !mcp.Supports(f.Capabilities, mcp.AskElicitation) &&
		!mcp.Supports(f.Capabilities, mcp.AskSampling) && !mcp.Supports(f.Capabilities, mcp.AskRoots) {
		call.Asked = f.Answer
		defer x.l.inFlight.track(f)()
		return x.client.Call(ctx, call)
	}
	p := &pendingCall{id: rand.Text(), done: make(chan struct{}),
		fresh: make(chan struct{}, 1), taken: make(chan struct{}), notified: call.Notified}
	p.ctx, p.end = context.WithCancelCause(e.ctx)
	p.idle = StartIdleTimer(e.server.CallLimit(), p.end)
	call.Notified = func(method string, params json.RawMessage) {
		p.idle.Reset()
		p.mu.Lock()
		notified := p.notified
		p.mu.Unlock()
		if notified != nil {
			notified(method, params)
		}
	}
	f.Notified, f.Ask = call.Notified, p.ask
	call.Asked = f.Answer
	forget := x.l.inFlight.track(f)
	e.running.Go(func() {
		defer p.idle.Stop()
		result, err := x.client.Call(p.ctx, call)
		forget()
		p.conclude(result, err)
		e.parked.forget(p)
		p.end(nil)
	})
	return p.await(ctx, &e.parked)
}

// conclude sets the outcome. It waits until the client has it or cannot come for it any more.
func (p *pendingCall) conclude(result json.RawMessage, err error) {
	p.mu.Lock()
	p.result, p.err = result, err
	p.mu.Unlock()
	close(p.done)
	if p.ctx.Err() != nil {
		return // nobody fetches it
	}
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	select {
	case <-p.taken:
	case <-late.C:
	case <-p.ctx.Done():
	}
}

// ask puts a question to the client and waits for its answer.
func (p *pendingCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	q := &question{key: rand.Text(), ask: mcp.InputRequest(method, params), answer: make(chan json.RawMessage, 1)}
	p.idle.Pause()
	defer p.idle.Resume()
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

// questions returns a result that asks the open questions. From then on no request waits for the
// call until its client comes back.
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
		{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
		{Key: "inputRequests", Value: asks.JSON()}, {Key: "requestState", Value: jsonobj.Quote(p.id)},
	}.JSON()
}

// await waits for the end of the call or for questions, with which the call is parked. If the
// client goes, the call ends.
func (p *pendingCall) await(ctx context.Context, parked *parkedCalls) (json.RawMessage, error) {
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
			parked.park(p)
			if asks := p.questions(); asks != nil {
				return asks, nil
			}
			parked.forget(p) // the server has withdrawn them
		case <-ctx.Done():
			p.end(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

// proceed gives the call the client's answers and lets it go on, for a further request of the
// client. Questions that the client has not answered are asked again.
func (p *pendingCall) proceed(notified func(string, json.RawMessage), responses jsonobj.Object) {
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
}

// parkedCalls are the pending calls whose client is to come back with answers.
type parkedCalls struct {
	mu   sync.Mutex
	byID map[string]*pendingCall
}

// park keeps a call for the further request of its client.
func (c *parkedCalls) park(p *pendingCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[string]*pendingCall{}
	}
	c.byID[p.id] = p
}

// forget says that a call is not parked any more.
func (c *parkedCalls) forget(p *pendingCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, p.id)
}

// resume takes out the call with an id, and lets it go on.
func (c *parkedCalls) resume(id string,
	notified func(string, json.RawMessage), responses jsonobj.Object) (*pendingCall, error) {
	c.mu.Lock()
	p := c.byID[id]
	delete(c.byID, id)
	c.mu.Unlock()
	if p == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "requestState: no call waits for this")
	}
	p.proceed(notified, responses)
	return p, nil
}
