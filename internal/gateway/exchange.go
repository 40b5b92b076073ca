package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// exchange is one request of a client, made once at the server over one connection.
type exchange struct {
	l      *Upstream
	client *mcp.Client
	r      *mcp.Request
	idle   *IdleTimer
	call   *InFlightCall
}

func newExchange(l *Upstream, client *mcp.Client, r *mcp.Request) *exchange {
	return &exchange{l: l, client: client, r: r, call: &InFlightCall{level: r.Meta().Text(mcp.MetaLogLevel)}}
}

// pass makes the request with params, and returns the result as the server gives it.
func (x *exchange) pass(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	x.idle = StartIdleTimer(x.l.e.server.CallLimit(), end)
	defer x.idle.Stop()
	call := x.prepare(params)
	if headers := x.l.e.server.CallHeader; headers != nil && x.r.Method == mcp.MethodToolsCall {
		var err error
		if call.Header, err = headers(); err != nil {
			return nil, mcp.Errorf(mcp.CodeInternal, "the call was not made: %v", err)
		}
	}
	if every, ok := ctx.Value(heartbeat{}).(time.Duration); ok {
		defer beat(x.r, x.call, &call, every)()
	}
	if x.r.Era == mcp.Modern && x.client.Era() == mcp.Legacy {
		if x.call.level != "" {
			x.l.logs.raise(ctx, x.client, x.call.level)
		}
		return x.callPending(ctx, call)
	}
	defer x.l.inFlight.track(x.call)()
	if x.r.Era == mcp.Legacy && x.client.Era() == mcp.Modern {
		return x.answerInputs(ctx, call)
	}
	return x.client.Call(ctx, call)
}

// prepare makes the call at the server.
func (x *exchange) prepare(params json.RawMessage) mcp.Call {
	l, r, server := x.l, x.r, x.client.Era()
	call := mcp.Call{Method: r.Method, Params: params, Checked: true, Meta: r.Meta(), Info: l.info}
	if r.Era == mcp.Modern {
		call.Info = call.Meta.Get(mcp.MetaClientInfo)
	}
	if !bytes.Equal(params, r.Params) {
		call.Meta = mcp.MetaOf(params)
	}
	ofHop := HopKeys
	if r.Era == mcp.Modern && server == mcp.Modern { // declarations of the client for this hop hold for the next, too
		ofHop = []string{mcp.MetaSubscriptionID}
	}
	if mcp.HasAny(call.Meta, ofHop) {
		call.Params = mcp.WithoutMeta(params, ofHop...)
		call.Meta = mcp.MetaOf(call.Params)
	}
	if level := l.logs.get(); r.Era == mcp.Legacy && server == mcp.Modern && level != "" {
		call.Params = mcp.WithMeta(call.Params, mcp.MetaLogLevel, jsonobj.Quote(level))
		call.Meta = mcp.MetaOf(call.Params)
	}
	call.Notified = x.notified
	x.call.Notified = x.notified
	switch {
	case r.Era == mcp.Modern && server == mcp.Modern:
		call.Capabilities = l.e.policy.Capabilities(mcp.Modern, r.Meta().Get(mcp.MetaClientCapabilities))
	case server == mcp.Modern:
		call.Capabilities = l.e.policy.Capabilities(mcp.Modern, l.capabilities.JSON())
	case r.Era == mcp.Modern:
		x.call.Capabilities = r.Meta().Object(mcp.MetaClientCapabilities)
	default:
		x.call.Capabilities = l.capabilities
		x.call.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			x.idle.Pause()
			defer x.idle.Resume()
			return mcp.AnswerOf(r.Ask(ctx, method, params))
		}
		call.Asked = x.call.Ask // a client that cannot answer says so itself
		if l.e.policy.AsksPerson() {
			call.Asked = x.call.Answer // the server was told that somebody can answer
		}
	}
	return call
}

// notified passes on notifications that the server sends in the middle of the call.
func (x *exchange) notified(method string, params json.RawMessage) {
	x.idle.Reset()
	params, forClient := x.l.e.tasks.Notification(x.l, method, params)
	if !forClient {
		return
	}
	if method == mcp.NoteMessage && x.r.Era == mcp.Modern && !wantsLog(x.call.level, params) {
		return // a modern client gets no logs that it has not asked for
	}
	_ = x.r.Notify(method, mcp.WithoutMeta(params, mcp.MetaSubscriptionID)) // a client that has gone is noticed elsewhere
}

// answerInputs calls a modern server for a legacy client. It asks the client what the server wants
// to know, in the way of the client's era.
func (x *exchange) answerInputs(ctx context.Context, call mcp.Call) (json.RawMessage, error) {
	for range mcp.MaxRounds {
		result, err := x.client.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" ||
			x.l.e.policy.AsksPerson() && mcptask.InputOf(result) != nil {
			return result, nil
		}
		var responses jsonobj.Object
		for _, request := range o.Object("inputRequests") {
			asked, _ := jsonobj.ParseObject(request.Value)
			x.idle.Pause()
			answer, failed := AskClient(ctx, x.l.capabilities, x.r, asked.Text("method"), asked.Get("params"))
			x.idle.Resume()
			if failed != nil {
				return nil, failed
			}
			responses = append(responses, jsonobj.Member{Key: request.Key, Value: answer})
		}
		params, err := jsonobj.ParseObject(call.Params)
		if err != nil {
			return nil, err
		}
		call.Params = mcp.WithResponses(params, responses, o.Get("requestState")).JSON()
	}
	return nil, mcp.ErrRounds
}

// AskClient asks a legacy client with these capabilities in the middle of its request.
func AskClient(ctx context.Context, capabilities jsonobj.Object, r *mcp.Request,
	method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if !mcp.Supports(capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	return mcp.AnswerOf(r.Ask(ctx, method, params))
}
