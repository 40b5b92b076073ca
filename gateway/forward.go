package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
)

// hopKeys are the keys of _meta that speak of one hop. The progress token is looked after by package mcp.
var hopKeys = []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities, mcp.MetaLogLevel, mcp.MetaSubscriptionID}

// metaOf are the members of the _meta of params or a result.
func metaOf(doc json.RawMessage) rawjson.Object {
	meta, _ := rawjson.ParseObject(rawjson.Get(doc, "_meta"))
	return meta
}

// withoutMeta takes keys out of the _meta of a document, and an empty _meta with the last of them. A document without them stays as it is.
func withoutMeta(doc json.RawMessage, keys ...string) json.RawMessage {
	meta := metaOf(doc)
	if !slices.ContainsFunc(meta, func(m rawjson.Member) bool { return slices.Contains(keys, m.Key) }) {
		return doc
	}
	o, err := rawjson.ParseObject(doc)
	if err != nil {
		return doc
	}
	if meta = meta.Delete(keys...); len(meta) == 0 {
		return o.Delete("_meta").JSON()
	}
	return o.Set("_meta", meta.JSON()).JSON()
}

// withMeta sets a key in the _meta of a document.
func withMeta(doc json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	o, err := rawjson.ParseObject(doc)
	if err != nil {
		return doc
	}
	return o.Set("_meta", o.Object("_meta").Set(key, value).JSON()).JSON()
}

// forward passes a request on and its answer back.
func (l *link) forward(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.pass(ctx, r, r.Params)
	if err != nil {
		return nil, l.failed(err)
	}
	return l.toClient(r, result), nil
}

// pass makes the request of a client at the server, with other params if need be, and gives the result as the server does.
func (l *link) pass(ctx context.Context, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	return l.passWith(ctx, r, func() json.RawMessage { return params })
}

// passWith is pass with params that depend on what the server has offered in the session.
func (l *link) passWith(ctx context.Context, r *mcp.Request, params func() json.RawMessage) (json.RawMessage, error) {
	c := l.client()
	result, err := l.passOnce(ctx, r, params())
	if errors.Is(err, mcp.ErrSessionLost) || errors.Is(err, mcp.ErrUnsent) {
		// The server has not looked at the request: it does not know the session any more, or was gone before.
		if err = l.renew(ctx, c); err == nil {
			result, err = l.passOnce(ctx, r, params())
		}
	}
	return result, err
}

func (l *link) passOnce(ctx context.Context, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	c := l.client()
	meta := r.Meta()
	call := mcp.Call{Method: r.Method, Params: params, Checked: true, Info: l.info}
	capabilities := l.capabilities
	if r.Era == mcp.Modern {
		capabilities, call.Info = meta.Object(mcp.MetaClientCapabilities), meta.Get(mcp.MetaClientInfo)
	}
	if r.Era == mcp.Modern && c.Era() == mcp.Modern { // what the client says of this hop holds for the next, too
		if meta.Has(mcp.MetaSubscriptionID) {
			call.Params = withoutMeta(params, mcp.MetaSubscriptionID)
		}
	} else {
		call.Params = withoutMeta(params, hopKeys...)
		if level := l.logLevel(); c.Era() == mcp.Modern && level != "" {
			call.Params = withMeta(call.Params, mcp.MetaLogLevel, rawjson.Quote(level))
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := l.e.watch(end)
	defer w.stop()
	level := meta.Text(mcp.MetaLogLevel)
	call.Notified = func(method string, params json.RawMessage) {
		w.heard()
		params, ours := l.withOurTask(method, params)
		if !ours {
			return
		}
		if method == mcp.NoteMessage && r.Era == mcp.Modern && !wantsLog(level, params) {
			return // a modern client gets no logs that it has not asked for
		}
		_ = r.Notify(method, withoutMeta(params, mcp.MetaSubscriptionID)) // a client that has gone is noticed elsewhere
	}
	f := &flight{notified: call.Notified, level: level, capabilities: capabilities}
	switch {
	case c.Era() == mcp.Modern:
		defer l.enter(f)()
		call.Capabilities = l.e.policy.capabilities(mcp.Modern, slices.Clone(capabilities)).JSON()
		if r.Era == mcp.Legacy {
			return l.answerInputs(ctx, w, c, r, call)
		}
		return c.Call(ctx, call)
	case r.Era == mcp.Modern:
		if level != "" {
			l.wantLogs(ctx, c, level)
		}
		return l.callPending(ctx, c, f, call)
	}
	f.ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		w.pause()
		defer w.resume()
		return answerOf(r.Ask(ctx, method, params))
	}
	call.Asked = f.ask // a client that cannot says so itself
	if l.e.policy.asksPerson() {
		call.Asked = f.answer // the server was told that somebody can
	}
	defer l.enter(f)()
	return c.Call(ctx, call)
}

// failed is what a client is told of a request that the server has not answered. An answer that is an error goes through as it came.
func (l *link) failed(err error) error {
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
	return mcp.Errorf(mcp.CodeInternal, "%s", l.gone(err))
}

// listMethods are those whose results say in Modern how long they hold.
var listMethods = []string{mcp.MethodToolsList, "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

// toClient gives a result the members that the client's protocol wants and the server's does not have.
func (l *link) toClient(r *mcp.Request, result json.RawMessage) json.RawMessage {
	server := l.client().Era()
	if server == r.Era {
		return result
	}
	o, err := rawjson.ParseObject(result)
	if err != nil {
		return result
	}
	if r.Era == mcp.Legacy {
		return withoutMeta(o.Delete("resultType").JSON(), mcp.MetaServerInfo)
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
