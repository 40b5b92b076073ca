package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// HopKeys are the keys of _meta that concern one hop. Package mcp handles the progress token.
var HopKeys = []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo,
	mcp.MetaClientCapabilities, mcp.MetaLogLevel, mcp.MetaSubscriptionID}

// forward passes a request on and its answer back.
func (l *Upstream) forward(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.Pass(ctx, r, r.Params)
	if err != nil {
		return nil, l.ClientError(err)
	}
	return l.ToClient(r, result), nil
}

// Pass makes the request of a client at the server, with other params if need be, and returns the
// server's result unchanged.
func (l *Upstream) Pass(ctx context.Context, r *mcp.Request, params json.RawMessage) (json.RawMessage, error) {
	return l.PassWith(ctx, r, func() json.RawMessage { return params })
}

// PassWith is Pass with params that depend on what the server has offered in the session. A request
// that the server has not looked at is made again over a new connection.
func (l *Upstream) PassWith(ctx context.Context, r *mcp.Request,
	params func() json.RawMessage) (json.RawMessage, error) {
	c := l.Client()
	result, err := newExchange(l, c, r).pass(ctx, params())
	if !notSeen(err) {
		return result, err
	}
	if err := l.Renew(ctx, c); err != nil {
		return nil, err
	}
	return newExchange(l, l.Client(), r).pass(ctx, params())
}

// notSeen reports whether the server has not looked at a request, because it does not know the
// session any more or was gone before.
func notSeen(err error) bool {
	return errors.Is(err, mcp.ErrSessionLost) || errors.Is(err, mcp.ErrUnsent)
}

// PassMethod makes a request of ours in the name of the client that has made the request r.
func (l *Upstream) PassMethod(ctx context.Context, r *mcp.Request,
	method string, params json.RawMessage) (json.RawMessage, error) {
	meta := mcp.MetaOf(params)
	call := mcp.Call{
		Method: method, Params: mcp.WithoutMeta(params, slices.Concat(HopKeys, []string{mcp.MetaProgressToken})...),
		Info: l.info, Capabilities: l.capabilities.JSON(),
	}
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

// Track records a call that is made without Pass, until forget is called.
func (l *Upstream) Track(f *InFlightCall) (forget func()) { return l.inFlight.track(f) }

// ClientError is the error that a client gets for a request that the server has not answered. An
// error that the server answered is passed on unchanged.
func (l *Upstream) ClientError(err error) error {
	if refused := unauthorized(l.e.server.Name, err); refused != nil {
		return refused
	}
	var said *mcp.Error
	if errors.As(err, &said) {
		return said
	}
	if errors.Is(err, mcp.ErrClosed) && !l.isClosed() {
		l.e.count(func(s *Stats) { s.Lost = err.Error() })
	}
	return mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(err))
}

// listMethods are the methods whose results say in Modern how long they hold.
var listMethods = []string{mcp.MethodToolsList, "prompts/list",
	"resources/list", "resources/templates/list", "resources/read"}

// ToClient adds to a result the members that the client's protocol wants and the server's does not
// have.
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
