package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
)

// What servers ask of clients.
const (
	askElicitation = "elicitation/create"
	askSampling    = "sampling/createMessage"
	askRoots       = "roots/list"
)

// maxRounds is how often a modern server may ask for more input for one request.
const maxRounds = 10

// answerOf splits an answer into what package mcp wants of a handler.
func answerOf(result json.RawMessage, err error) (json.RawMessage, *mcp.Error) {
	var said *mcp.Error
	switch {
	case errors.As(err, &said):
		return nil, said
	case err != nil:
		return nil, mcp.Errorf(mcp.CodeInternal, "the client did not answer: %v", err)
	}
	return result, nil
}

// alone answers a server where no client can: a person would decline, there are no roots, and nobody samples.
func alone(method string) (json.RawMessage, *mcp.Error) {
	switch method {
	case askElicitation:
		return json.RawMessage(`{"action":"decline"}`), nil
	case askRoots:
		return json.RawMessage(`{"roots":[]}`), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "the client does not support %s", method)
}

// able reports whether a client with these capabilities can answer a request.
func able(capabilities rawjson.Object, method string) bool {
	switch method {
	case askElicitation:
		return capabilities.Has("elicitation")
	case askSampling:
		return capabilities.Has("sampling")
	case askRoots:
		return capabilities.Has("roots")
	}
	return false
}

// askedApart answers a request of a legacy server that belongs to no call.
func (l *link) askedApart(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if l.session == nil || !able(l.capabilities, method) {
		return alone(method)
	}
	return answerOf(l.session.Ask(ctx, method, params))
}

// answerInputs calls a modern server for a legacy client: what the server wants to know before it answers the client is asked in the way that it knows.
func (l *link) answerInputs(ctx context.Context, c *mcp.Client, r *mcp.Request, call mcp.Call) (json.RawMessage, error) {
	for range maxRounds {
		result, err := c.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		o, err := rawjson.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" {
			return result, nil
		}
		var responses rawjson.Object
		for _, request := range o.Object("inputRequests") {
			asked, _ := rawjson.ParseObject(request.Value)
			answer, failed := l.askClient(ctx, r, asked.Text("method"), asked.Get("params"))
			if failed != nil {
				return nil, failed
			}
			responses = append(responses, rawjson.Member{Key: request.Key, Value: answer})
		}
		params, err := rawjson.ParseObject(call.Params)
		if err != nil {
			return nil, err
		}
		params = params.Delete("inputResponses", "requestState").Set("inputResponses", responses.JSON())
		if state := o.Get("requestState"); state != nil {
			params = params.Set("requestState", state)
		}
		call.Params = params.JSON()
	}
	return nil, mcp.Errorf(mcp.CodeInternal, "the server asked for input %d times", maxRounds)
}

// askClient asks a legacy client in the middle of its request.
func (l *link) askClient(ctx context.Context, r *mcp.Request, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !able(l.capabilities, method) {
		return alone(method)
	}
	return answerOf(r.Ask(ctx, method, params))
}

// pendingCall is a call at a legacy server that a modern client has made, while the server waits for input. It goes on when the client comes back.
type pendingCall struct {
	id   string
	done chan struct{} // closed when result and err are there
	asks chan *ask
	end  context.CancelFunc

	mu sync.Mutex
	// request is the one that waits now.
	request *mcp.Request
	waiting *ask
	result  json.RawMessage
	err     error
}

// ask is a question of the server.
type ask struct {
	key    string
	method string
	params json.RawMessage
	answer chan json.RawMessage
}

// callPending calls a legacy server for a modern client, which is asked by a result and answers with a further request.
func (l *link) callPending(ctx context.Context, c *mcp.Client, r *mcp.Request, call mcp.Call, capabilities rawjson.Object) (json.RawMessage, error) {
	params, err := rawjson.ParseObject(call.Params)
	if err != nil {
		return c.Call(ctx, call)
	}
	if state := params.Text("requestState"); state != "" {
		p, err := l.e.resumePending(state, r, params.Object("inputResponses"))
		if err != nil {
			return nil, err
		}
		return l.e.awaitPending(ctx, p)
	}
	if !able(capabilities, askElicitation) && !able(capabilities, askSampling) && !able(capabilities, askRoots) {
		call.Asked = func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *mcp.Error) {
			return alone(method)
		}
		return c.Call(ctx, call)
	}
	p := &pendingCall{id: rand.Text(), done: make(chan struct{}), asks: make(chan *ask), request: r}
	background, end := context.WithTimeout(l.e.ctx, l.e.server.timeout())
	p.end = end
	notified := call.Notified
	call.Notified = func(method string, params json.RawMessage) {
		p.mu.Lock()
		current := p.request
		p.mu.Unlock()
		if current == r {
			notified(method, params)
		} else if current != nil {
			_ = current.Notify(method, params) // as above
		}
	}
	call.Asked = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if !able(capabilities, method) {
			return alone(method)
		}
		return p.ask(ctx, method, params)
	}
	l.e.running.Go(func() {
		defer end()
		result, err := c.Call(background, call)
		p.mu.Lock()
		p.result, p.err = result, err
		p.mu.Unlock()
		close(p.done)
	})
	return l.e.awaitPending(ctx, p)
}

// ask waits until the client has answered.
func (p *pendingCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	a := &ask{key: rand.Text(), method: method, params: params, answer: make(chan json.RawMessage, 1)}
	select {
	case p.asks <- a:
	case <-ctx.Done():
		return answerOf(nil, ctx.Err())
	}
	select {
	case answer := <-a.answer:
		return answer, nil
	case <-ctx.Done():
		return answerOf(nil, ctx.Err())
	}
}

// awaitPending waits for the end of the call or for a question. A client that goes in between ends the call.
func (e *Endpoint) awaitPending(ctx context.Context, p *pendingCall) (json.RawMessage, error) {
	select {
	case <-p.done:
		e.mu.Lock()
		delete(e.pending, p.id)
		e.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.result, p.err
	case a := <-p.asks:
		p.mu.Lock()
		p.waiting, p.request = a, nil
		p.mu.Unlock()
		e.mu.Lock()
		e.pending[p.id] = p
		e.mu.Unlock()
		request := rawjson.Object{{Key: "method", Value: rawjson.Quote(a.method)}}
		if a.params != nil {
			request = request.Set("params", a.params)
		}
		return rawjson.Object{
			{Key: "resultType", Value: json.RawMessage(`"input_required"`)},
			{Key: "inputRequests", Value: rawjson.Object{{Key: a.key, Value: request.JSON()}}.JSON()},
			{Key: "requestState", Value: rawjson.Quote(p.id)},
		}.JSON(), nil
	case <-ctx.Done():
		p.end()
		return nil, context.Cause(ctx)
	}
}

// resumePending hands in what the client has answered.
func (e *Endpoint) resumePending(id string, r *mcp.Request, responses rawjson.Object) (*pendingCall, error) {
	e.mu.Lock()
	p := e.pending[id]
	delete(e.pending, id)
	e.mu.Unlock()
	if p == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "requestState: no call waits for this")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := responses.Get(p.waiting.key)
	if answer == nil {
		e.mu.Lock()
		e.pending[id] = p
		e.mu.Unlock()
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "inputResponses: %s", fmt.Sprintf("the answer to %q is missing", p.waiting.key))
	}
	p.waiting.answer <- answer
	p.waiting, p.request = nil, r
	return p, nil
}
