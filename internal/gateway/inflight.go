package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// InFlightCall is a call that has not been answered. Over stdio a server does not say to which of
// its calls a question or a log message belongs. Of several calls it then goes to the oldest to
// which it can belong.
type InFlightCall struct {
	// Notified is called with the notifications of the call. level is the level of the logs that its
	// client wants to see; empty for none.
	Notified func(method string, params json.RawMessage)
	level    string
	// Capabilities are those of the client, which Ask asks.
	Capabilities jsonobj.Object
	Ask          func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error)
}

// Answer answers a question that the server asks in the middle of the call.
func (f *InFlightCall) Answer(ctx context.Context, method string,
	params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if f.Ask == nil || !mcp.Supports(f.Capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	return f.Ask(ctx, method, params)
}

// inFlightCalls are the calls of an upstream that have not been answered, the oldest first. They
// find the call that a server's question or log message concerns if it names none.
type inFlightCalls struct {
	// session and capabilities are the client's; session is nil for modern clients.
	session      *mcp.Session
	capabilities jsonobj.Object

	mu    sync.Mutex
	calls []*InFlightCall
}

// track records a call until forget is called.
func (i *inFlightCalls) track(f *InFlightCall) (forget func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, f)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.calls = slices.DeleteFunc(i.calls, func(other *InFlightCall) bool { return other == f })
	}
}

// all returns the calls at this moment.
func (i *inFlightCalls) all() []*InFlightCall {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.calls)
}

// ask answers a request of a legacy server that does not say to which call it belongs.
func (i *inFlightCalls) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if i.session != nil && mcp.Supports(i.capabilities, method) {
		result, err := i.session.Ask(ctx, method, params)
		var said *mcp.Error
		if err == nil || errors.As(err, &said) || ctx.Err() != nil {
			return mcp.AnswerOf(result, err)
		}
		// The client has no stream for messages that belong to no request of its own.
	}
	for _, f := range i.all() {
		if f.Ask != nil && mcp.Supports(f.Capabilities, method) {
			return f.Ask(ctx, method, params)
		}
	}
	return mcp.DefaultAnswer(method)
}

// log passes on a log message that does not say to which call it belongs. If there is only one
// call, the message goes with it, and so comes before its answer. If there are several, a modern
// client gets it with the oldest of its calls that wants logs, since it hears nothing outside of
// calls.
func (i *inFlightCalls) log(params json.RawMessage) {
	calls := i.all()
	at := 0
	if len(calls) != 1 {
		at = slices.IndexFunc(calls, func(f *InFlightCall) bool { return i.session == nil && wantsLog(f.level, params) })
	}
	switch {
	case at >= 0:
		calls[at].Notified(mcp.NoteMessage, params)
	case i.session != nil:
		_ = i.session.Notify(mcp.NoteMessage, params) // a session that has ended does not want it
	}
}
