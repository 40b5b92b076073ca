package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// InFlightCall is a call that has not been answered. Over stdio a server does not say to which of its calls belongs what it asks or logs; where there are
// several, it is the oldest that it can belong to.
type InFlightCall struct {
	// Notified gets what belongs to the call, level is that of the logs that its client wants to see; empty for none.
	Notified func(method string, params json.RawMessage)
	level    string
	// Capabilities are those of the client, which ask asks.
	Capabilities jsonobj.Object
	Ask          func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error)
}

// Answer answers what the server asks in the middle of the call.
func (f *InFlightCall) Answer(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if f.Ask == nil || !mcp.Supports(f.Capabilities, method) {
		return mcp.DefaultAnswer(method)
	}
	return f.Ask(ctx, method, params)
}

// Track notes a flight until the function is called that it returns.
func (l *Upstream) Track(f *InFlightCall) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights = append(l.flights, f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.flights = slices.DeleteFunc(l.flights, func(other *InFlightCall) bool { return other == f })
	}
}

// oldest is the oldest flight that fits; nil if there is none.
func (l *Upstream) oldest(fits func(f *InFlightCall) bool) *InFlightCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.flights, fits); i >= 0 {
		return l.flights[i]
	}
	return nil
}

// askedApart answers a request of a legacy server that does not say to which call it belongs.
func (l *Upstream) askedApart(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if l.session != nil && mcp.Supports(l.capabilities, method) {
		result, err := l.session.Ask(ctx, method, params)
		var said *mcp.Error
		if err == nil || errors.As(err, &said) || ctx.Err() != nil {
			return mcp.AnswerOf(result, err)
		}
		// The client has no stream for what belongs to no request of its own.
	}
	f := l.oldest(func(f *InFlightCall) bool { return f.Ask != nil && mcp.Supports(f.Capabilities, method) })
	if f == nil {
		return mcp.DefaultAnswer(method)
	}
	return f.Ask(ctx, method, params)
}

// logApart passes on a log message that does not say to which call it belongs: to the only one that it can belong to, before whose answer it then
// comes. Where there are several a modern client, which is told with its requests, is told with the oldest that wants logs.
func (l *Upstream) logApart(params json.RawMessage) {
	l.mu.Lock()
	flights := slices.Clone(l.flights)
	l.mu.Unlock()
	i := 0
	if len(flights) != 1 {
		i = slices.IndexFunc(flights, func(f *InFlightCall) bool { return l.session == nil && wantsLog(f.level, params) })
	}
	switch {
	case i >= 0:
		flights[i].Notified(mcp.NoteMessage, params)
	case l.session != nil:
		_ = l.session.Notify(mcp.NoteMessage, params) // a session that has ended does not want it
	}
}

// notifiedOutside takes what a server says outside of calls.
func (l *Upstream) notifiedOutside(method string, params json.RawMessage) {
	if params, ok := l.e.tasks.Notification(l, method, params); ok {
		l.notified(method, params)
	}
}

// askedOutside answers what a legacy server asks outside of calls.
func (l *Upstream) askedOutside(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	ask, params := l.e.tasks.Question(l, params)
	if ask != nil {
		return ask(ctx, method, params)
	}
	return l.askedApart(ctx, method, params)
}
