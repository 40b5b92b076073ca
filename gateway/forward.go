package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
)

// hopKeys are the keys of _meta that speak of one hop. The progress token is looked after by package mcp.
var hopKeys = []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities, mcp.MetaLogLevel, mcp.MetaSubscriptionID}

var metaQuoted = []byte(`"_meta"`)

// metaOf are the members of the _meta of params or a result.
func metaOf(doc json.RawMessage) rawjson.Object {
	if !bytes.Contains(doc, metaQuoted) {
		return nil
	}
	o, _ := rawjson.ParseObject(doc)
	return o.Object("_meta")
}

// withoutMeta takes keys out of the _meta of a document, and an empty _meta with the last of them. A document without them stays as it is.
func withoutMeta(doc json.RawMessage, keys ...string) json.RawMessage {
	if !bytes.Contains(doc, metaQuoted) {
		return doc
	}
	o, err := rawjson.ParseObject(doc)
	if err != nil {
		return doc
	}
	meta := o.Object("_meta")
	if !slices.ContainsFunc(meta, func(m rawjson.Member) bool { return slices.Contains(keys, m.Key) }) {
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
	result, err := l.passOnce(ctx, r, params())
	if errors.Is(err, mcp.ErrSessionLost) {
		// The server has not looked at the request: it does not know the session any more.
		l.connecting.Lock()
		err = l.reconnect(ctx)
		l.connecting.Unlock()
		if err == nil {
			result, err = l.passOnce(ctx, r, params())
		}
	}
	return result, err
}

func (l *link) passOnce(ctx context.Context, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	c := l.client()
	meta := metaOf(params)
	call := mcp.Call{Method: r.Method, Params: withoutMeta(params, hopKeys...), Info: l.info}
	capabilities := l.capabilities
	if r.Era == mcp.Modern {
		capabilities, call.Info = meta.Object(mcp.MetaClientCapabilities), meta.Get(mcp.MetaClientInfo)
		if c.Era() == mcp.Modern && meta.Has(mcp.MetaLogLevel) {
			call.Params = withMeta(call.Params, mcp.MetaLogLevel, meta.Get(mcp.MetaLogLevel))
		}
	} else if level := l.logLevel(); c.Era() == mcp.Modern && level != "" {
		call.Params = withMeta(call.Params, mcp.MetaLogLevel, rawjson.Quote(level))
	}
	ctx, watch := l.deadline(ctx)
	defer watch.Stop()
	level := meta.Text(mcp.MetaLogLevel)
	call.Notified = func(method string, params json.RawMessage) {
		watch.Reset(l.e.server.timeout())
		if method == mcp.NoteMessage && r.Era == mcp.Modern && level == "" {
			return // a modern client gets no logs that it has not asked for
		}
		_ = r.Notify(method, withoutMeta(params, mcp.MetaSubscriptionID)) // a client that has gone is noticed elsewhere
	}
	switch {
	case c.Era() == mcp.Modern:
		call.Capabilities = l.e.policy.capabilities(slices.Clone(capabilities)).JSON()
		if r.Era == mcp.Legacy {
			return l.answerInputs(ctx, c, r, call)
		}
		return c.Call(ctx, call)
	case r.Era == mcp.Modern:
		if level != "" && level != l.logLevel() {
			if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: rawjson.Object{{Key: "level", Value: rawjson.Quote(level)}}.JSON()}); err == nil {
				l.setLogLevel(level)
			}
		}
		return l.callPending(ctx, c, r, call, capabilities)
	}
	call.Asked = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		return answerOf(r.Ask(ctx, method, params))
	}
	return c.Call(ctx, call)
}

// errTimeout ends a call of which nothing was heard for too long.
var errTimeout = errors.New("nothing was heard of the call for too long")

// deadline ends a call when nothing is heard of it for the server's timeout.
func (l *link) deadline(ctx context.Context) (context.Context, *time.Timer) {
	ctx, cancel := context.WithCancelCause(ctx)
	timeout := l.e.server.timeout()
	return ctx, time.AfterFunc(timeout, func() { cancel(fmt.Errorf("%w: %v", errTimeout, timeout)) })
}

// failed is what a client is told of a request that the server has not answered. An answer that is an error goes through as it came.
func (l *link) failed(err error) error {
	var said *mcp.Error
	if errors.As(err, &said) {
		return said
	}
	if errors.Is(err, mcp.ErrClosed) {
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

func (l *link) logLevel() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

func (l *link) setLogLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

// setLevel is the legacy way to ask for logs; a modern server is asked with each request.
func (l *link) setLevel(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if l.client().Era() == mcp.Legacy {
		return l.forward(ctx, r)
	}
	params, err := rawjson.ParseObject(r.Params)
	if err != nil || params.Text("level") == "" {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a level")
	}
	l.setLogLevel(params.Text("level"))
	return json.RawMessage("{}"), nil
}
