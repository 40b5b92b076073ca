package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// hopKeys are the keys of _meta that speak of one hop. The progress token is looked after by package mcp.
var hopKeys = []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities, mcp.MetaLogLevel, mcp.MetaSubscriptionID}

// metaOf are the members of the _meta of params or a result.
func metaOf(doc json.RawMessage) jsonobj.Object {
	meta, _ := jsonobj.ParseObject(jsonobj.Get(doc, "_meta"))
	return meta
}

func hasAny(o jsonobj.Object, keys []string) bool { return slices.ContainsFunc(keys, o.Has) }

// withoutMeta takes keys out of the _meta of a document, and an empty _meta with the last of them. A document without them stays as it is.
func withoutMeta(doc json.RawMessage, keys ...string) json.RawMessage {
	meta := metaOf(doc)
	if !hasAny(meta, keys) {
		return doc
	}
	o, err := jsonobj.ParseObject(doc)
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
	o, err := jsonobj.ParseObject(doc)
	if err != nil {
		return doc
	}
	return o.Set("_meta", o.Object("_meta").Set(key, value).JSON()).JSON()
}

// forward passes a request on and its answer back.
func (l *link) forward(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.pass(ctx, r, r.Params)
	return l.outcome(r, result, err)
}

// outcome is what the server has made of a request, as its client is to see it.
func (l *link) outcome(r *mcp.Request, result json.RawMessage, err error) (json.RawMessage, error) {
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
func (l *link) passAgain(ctx context.Context, c *mcp.Client, r *mcp.Request, params func() json.RawMessage) (json.RawMessage, error) {
	if err := l.renew(ctx, c); err != nil {
		return nil, err
	}
	return l.passOnce(ctx, l.client(), r, params())
}

// prepare makes the call at the server of the request of a client, and its flight.
func (l *link) prepare(c *mcp.Client, r *mcp.Request, params json.RawMessage, w *watch) (*flight, mcp.Call) {
	f := &flight{level: r.Meta().Text(mcp.MetaLogLevel)}
	call := mcp.Call{Method: r.Method, Params: params, Checked: true, Meta: r.Meta(), Info: l.info}
	if r.Era == mcp.Modern {
		call.Info = call.Meta.Get(mcp.MetaClientInfo)
	}
	if !bytes.Equal(params, r.Params) {
		call.Meta = metaOf(params)
	}
	ofHop := hopKeys
	if r.Era == mcp.Modern && c.Era() == mcp.Modern { // what the client says of this hop holds for the next, too
		ofHop = []string{mcp.MetaSubscriptionID}
	}
	if hasAny(call.Meta, ofHop) {
		call.Params = withoutMeta(params, ofHop...)
		call.Meta = metaOf(call.Params)
	}
	if level := l.logLevel(); r.Era == mcp.Legacy && c.Era() == mcp.Modern && level != "" {
		call.Params = withMeta(call.Params, mcp.MetaLogLevel, jsonobj.Quote(level))
		call.Meta = metaOf(call.Params)
	}
	call.Notified = func(method string, params json.RawMessage) {
		w.heard()
		params, ours := l.e.tasks.Notification(l, method, params)
		if !ours {
			return
		}
		if method == mcp.NoteMessage && r.Era == mcp.Modern && !wantsLog(f.level, params) {
			return // a modern client gets no logs that it has not asked for
		}
		_ = r.Notify(method, withoutMeta(params, mcp.MetaSubscriptionID)) // a client that has gone is noticed elsewhere
	}
	f.notified = call.Notified
	switch {
	case r.Era == mcp.Modern && c.Era() == mcp.Modern:
		call.Capabilities = l.e.policy.capabilities(mcp.Modern, r.Meta().Get(mcp.MetaClientCapabilities))
	case c.Era() == mcp.Modern:
		call.Capabilities = l.e.policy.capabilities(mcp.Modern, l.capabilities.JSON())
	case r.Era == mcp.Modern:
		f.capabilities = r.Meta().Object(mcp.MetaClientCapabilities)
	default:
		f.capabilities = l.capabilities
		f.ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			w.pause()
			defer w.resume()
			return answerOf(r.Ask(ctx, method, params))
		}
		call.Asked = f.ask // a client that cannot says so itself
		if l.e.policy.asksPerson() {
			call.Asked = f.answer // the server was told that somebody can
		}
	}
	return f, call
}

func (l *link) passOnce(ctx context.Context, c *mcp.Client, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := l.e.watch(end)
	defer w.stop()
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
	defer l.enter(f)()
	if r.Era == mcp.Legacy && c.Era() == mcp.Modern {
		return l.answerInputs(ctx, w, c, r, call)
	}
	return c.Call(ctx, call)
}

// heartbeat is the key of a context under which it says how often the client of a call is told that the call goes on: some clients give a silent one up
// after a minute.
type heartbeat struct{}

// withHeartbeat is a context in which a client is told that often that its call goes on.
func withHeartbeat(ctx context.Context, every time.Duration) context.Context {
	return context.WithValue(ctx, heartbeat{}, every)
}

// beat tells the client of a call, if it has asked for progress, that the call goes on, until the function is called that it returns or the server reports
// progress of its own. Ours is next to nothing, since progress must not go back.
func beat(r *mcp.Request, f *flight, call *mcp.Call, every time.Duration) (stop func()) {
	token := r.Meta().Get(mcp.MetaProgressToken)
	if token == nil {
		return func() {}
	}
	over, heard, notified := make(chan struct{}), make(chan struct{}), call.Notified
	var once sync.Once
	call.Notified = func(method string, params json.RawMessage) {
		if method == mcp.NoteProgress {
			once.Do(func() { close(heard) })
		}
		notified(method, params)
	}
	f.notified = call.Notified
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				note := jsonobj.Object{{Key: "progressToken", Value: token}, {Key: "progress", Value: fmt.Appendf(nil, "%.9f", float64(n)*1e-9)}, {Key: "message", Value: jsonobj.Quote("still running")}}
				_ = r.Notify(mcp.NoteProgress, note.JSON()) // a client that has gone ends the call
			case <-heard:
				return
			case <-over:
				return
			}
		}
	})
	return func() { close(over); beating.Wait() }
}

// failed is what a client is told of a request that the server has not answered. An answer that is an error goes through as it came.
func (l *link) failed(err error) error {
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
	o, err := jsonobj.ParseObject(result)
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

// passMethod makes a request of ours with the words of a client's.
func (l *link) passMethod(ctx context.Context, r *mcp.Request, method string, params json.RawMessage) (json.RawMessage, error) {
	meta := metaOf(params)
	call := mcp.Call{Method: method, Params: withoutMeta(params, slices.Concat(hopKeys, []string{mcp.MetaProgressToken})...), Info: l.info, Capabilities: l.capabilities.JSON()}
	if r.Era == mcp.Modern {
		call.Capabilities, call.Info = meta.Object(mcp.MetaClientCapabilities).JSON(), meta.Get(mcp.MetaClientInfo)
	}
	ctx, cancel := context.WithTimeout(ctx, l.e.server.timeout())
	defer cancel()
	c := l.client()
	result, err := c.Call(ctx, call)
	if errors.Is(err, mcp.ErrSessionLost) {
		if err = l.renew(ctx, c); err == nil {
			result, err = l.client().Call(ctx, call)
		}
	}
	return result, err
}

func progressOf(token json.RawMessage, n int, message string) json.RawMessage {
	return jsonobj.Object{
		{Key: "progressToken", Value: token}, {Key: "progress", Value: strconv.AppendInt(nil, int64(n), 10)}, {Key: "message", Value: jsonobj.Quote(message)},
	}.JSON()
}
