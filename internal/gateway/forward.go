package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// HopKeys are the keys of _meta that speak of one hop. The progress token is looked after by package mcp.
var HopKeys = []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities, mcp.MetaLogLevel, mcp.MetaSubscriptionID}

// forward passes a request on and its answer back.
func (l *Upstream) forward(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.Pass(ctx, r, r.Params)
	return l.Outcome(r, result, err)
}

// Outcome is what the server has made of a request, as its client is to see it.
func (l *Upstream) Outcome(r *mcp.Request, result json.RawMessage, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, l.ClientError(err)
	}
	return l.ToClient(r, result), nil
}

// Pass makes the request of a client at the server, with other params if need be, and gives the result as the server does.
func (l *Upstream) Pass(ctx context.Context, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	return l.PassWith(ctx, r, func() json.RawMessage { return params })
}

// PassWith is pass with params that depend on what the server has offered in the session.
func (l *Upstream) PassWith(ctx context.Context, r *mcp.Request, params func() json.RawMessage) (json.RawMessage, error) {
	c := l.Client()
	result, err := l.passOnce(ctx, c, r, params())
	if notSeen(err) {
		return l.passAgain(ctx, c, r, params)
	}
	return result, err
}

// notSeen reports whether the server has not looked at a request: it does not know the session any more, or was gone before.
func notSeen(err error) bool {
	return errors.Is(err, mcp.ErrSessionLost) || errors.Is(err, mcp.ErrUnsent)
}

// passAgain makes a request that the server has not looked at over a new connection, in place of c.
func (l *Upstream) passAgain(ctx context.Context, c *mcp.Client, r *mcp.Request, params func() json.RawMessage) (json.RawMessage, error) {
	if err := l.Renew(ctx, c); err != nil {
		return nil, err
	}
	return l.passOnce(ctx, l.Client(), r, params())
}

// prepare makes the call at the server of the request of a client, and its flight.
func (l *Upstream) prepare(c *mcp.Client, r *mcp.Request, params json.RawMessage, w *IdleTimer) (*InFlightCall, mcp.Call) {
	f := &InFlightCall{level: r.Meta().Text(mcp.MetaLogLevel)}
	call := mcp.Call{Method: r.Method, Params: params, Checked: true, Meta: r.Meta(), Info: l.info}
	if r.Era == mcp.Modern {
		call.Info = call.Meta.Get(mcp.MetaClientInfo)
	}
	if !bytes.Equal(params, r.Params) {
		call.Meta = mcp.MetaOf(params)
	}
	ofHop := HopKeys
	if r.Era == mcp.Modern && c.Era() == mcp.Modern { // what the client says of this hop holds for the next, too
		ofHop = []string{mcp.MetaSubscriptionID}
	}
	if mcp.HasAny(call.Meta, ofHop) {
		call.Params = mcp.WithoutMeta(params, ofHop...)
		call.Meta = mcp.MetaOf(call.Params)
	}
	if level := l.logLevel(); r.Era == mcp.Legacy && c.Era() == mcp.Modern && level != "" {
		call.Params = mcp.WithMeta(call.Params, mcp.MetaLogLevel, jsonobj.Quote(level))
		call.Meta = mcp.MetaOf(call.Params)
	}
	call.Notified = func(method string, params json.RawMessage) {
		w.Reset()
		params, ours := l.e.tasks.Notification(l, method, params)
		if !ours {
			return
		}
		if method == mcp.NoteMessage && r.Era == mcp.Modern && !wantsLog(f.level, params) {
			return // a modern client gets no logs that it has not asked for
		}
		_ = r.Notify(method, mcp.WithoutMeta(params, mcp.MetaSubscriptionID)) // a client that has gone is noticed elsewhere
	}
	f.Notified = call.Notified
	switch {
	case r.Era == mcp.Modern && c.Era() == mcp.Modern:
		call.Capabilities = l.e.policy.Capabilities(mcp.Modern, r.Meta().Get(mcp.MetaClientCapabilities))
	case c.Era() == mcp.Modern:
		call.Capabilities = l.e.policy.Capabilities(mcp.Modern, l.capabilities.JSON())
	case r.Era == mcp.Modern:
		f.Capabilities = r.Meta().Object(mcp.MetaClientCapabilities)
	default:
		f.Capabilities = l.capabilities
		f.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			w.Pause()
			defer w.Resume()
			return mcp.AnswerOf(r.Ask(ctx, method, params))
		}
		call.Asked = f.Ask // a client that cannot says so itself
		if l.e.policy.AsksPerson() {
			call.Asked = f.Answer // the server was told that somebody can
		}
	}
	return f, call
}

func (l *Upstream) passOnce(ctx context.Context, c *mcp.Client, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := l.e.StartIdleTimer(end)
	defer w.Stop()
	f, call := l.prepare(c, r, params, w)
	if every, ok := ctx.Value(heartbeat{}).(time.Duration); ok {
		defer beat(r, f, &call, every)()
	}
	if r.Era == mcp.Modern && c.Era() == mcp.Legacy {
		if f.level != "" {
			l.wantLogs(ctx, c, f.level)
		}
		return l.callPending(ctx, c, f, call)
	}
	defer l.Track(f)()
	if r.Era == mcp.Legacy && c.Era() == mcp.Modern {
		return l.answerInputs(ctx, w, c, r, call)
	}
	return c.Call(ctx, call)
}

// ClientError is what a client is told of a request that the server has not answered. An answer that is an error goes through as it came.
func (l *Upstream) ClientError(err error) error {
	if refused := l.e.unauthorized(err); refused != nil {
		return refused
	}
	var said *mcp.Error
	if errors.As(err, &said) {
		return said
	}
	l.mu.Lock()
	ours := l.closing || l.e.ctx.Err() != nil
	l.mu.Unlock()
	if errors.Is(err, mcp.ErrClosed) && !ours {
		l.e.mu.Lock()
		l.e.stats.Lost = err.Error()
		l.e.mu.Unlock()
	}
	return mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(err))
}

// listMethods are those whose results say in Modern how long they hold.
var listMethods = []string{mcp.MethodToolsList, "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

// ToClient gives a result the members that the client's protocol wants and the server's does not have.
func (l *Upstream) ToClient(r *mcp.Request, result json.RawMessage) json.RawMessage {
	server := l.Client().Era()
	if server == r.Era {
		return result
	}
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		return result
	}
	if r.Era == mcp.Legacy {
		return mcp.WithoutMeta(o.Delete("resultType").JSON(), mcp.MetaServerInfo)
	}
	if !o.Has("resultType") {
		o = o.Set("resultType", json.RawMessage(`"complete"`))
	}
	if slices.Contains(listMethods, r.Method) {
		if !o.Has("ttlMs") {
			o = o.Set("ttlMs", json.RawMessage("0"))
		}
		if !o.Has("cacheScope") {
			o = o.Set("cacheScope", json.RawMessage(`"private"`))
		}
	}
	return o.JSON()
}

// PassMethod makes a request of ours with the words of a client's.
func (l *Upstream) PassMethod(ctx context.Context, r *mcp.Request, method string, params json.RawMessage) (json.RawMessage, error) {
	meta := mcp.MetaOf(params)
	call := mcp.Call{Method: method, Params: mcp.WithoutMeta(params, slices.Concat(HopKeys, []string{mcp.MetaProgressToken})...), Info: l.info, Capabilities: l.capabilities.JSON()}
	if r.Era == mcp.Modern {
		call.Capabilities, call.Info = meta.Object(mcp.MetaClientCapabilities).JSON(), meta.Get(mcp.MetaClientInfo)
	}
	ctx, cancel := context.WithTimeout(ctx, l.e.server.CallLimit())
	defer cancel()
	c := l.Client()
	result, err := c.Call(ctx, call)
	if errors.Is(err, mcp.ErrSessionLost) {
		if err = l.Renew(ctx, c); err == nil {
			result, err = l.Client().Call(ctx, call)
		}
	}
	return result, err
}
