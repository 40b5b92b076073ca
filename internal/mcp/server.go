package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// Handler serves clients. Implementations are safe for concurrent use.
type Handler interface {
	// Serve answers a request. The result is valid JSON; nil means {}. An error that is an [*Error]
	// is sent as it is; another one becomes -32603 with its text, and so does a panic. ctx ends
	// with the cause [ErrCancelled] when the client cancels the request or, in Modern over HTTP,
	// leaves the response; in Legacy over HTTP a lost connection does not end it. It ends with the
	// session or the connection, too. It has the values of the context of the HTTP request.
	//
	// The result of initialize says in protocolVersion which version the session has; an error ends
	// the session.
	Serve(ctx context.Context, r *Request) (json.RawMessage, error)
	// Notified is called with the notifications of a session one after another, as they came; it must
	// not block for long. The package itself acts on notifications/cancelled and does not pass it on.
	// A modern notification over HTTP has a session of its own.
	Notified(s *Session, method string, params json.RawMessage)
	// Closed is called when a legacy session or a stdio connection has ended, also one whose
	// initialize failed. No request of it runs any more.
	Closed(s *Session)
}

// ServerOptions are settings of a server. The zero value works.
type ServerOptions struct {
	// MaxMessage is the greatest length of a client's message, in bytes; 0 means 64 MiB.
	MaxMessage int
	// IdleTimeout is how long a legacy HTTP session may have no request and no stream before it ends;
	// 0 means never.
	IdleTimeout time.Duration
	// Restore returns the version of a legacy HTTP session that is not known here, such as one of an
	// earlier process. It is called whatever the client sends first. If ok is false, or Restore is
	// nil, there is no such session. Until it returns the session is not served: it may be given a
	// Value, and its client be told something. Restore is also called after a session has ended, but
	// not before Closed has returned.
	Restore func(ctx context.Context, s *Session) (version string, ok bool)
	// Hosts are the names that the headers Host and Origin may have beside loopback ones; "*"
	// allows all. Others are refused, because a web site that has its name resolve to this machine
	// could otherwise use the server (DNS rebinding).
	Hosts []string
	// StreamAfter is how long a POST may stay without an answer before it becomes an event stream,
	// which clients wait for longer; 0 means 500 ms.
	StreamAfter time.Duration
	// Now is the clock of IdleTimeout; nil means time.Now.
	Now func() time.Time
}

// withDefaults fills in what was left out.
func (o ServerOptions) withDefaults() ServerOptions {
	if o.MaxMessage == 0 {
		o.MaxMessage = 64 << 20
	}
	if o.StreamAfter == 0 {
		o.StreamAfter = 500 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// ErrCancelled is the cause of the end of a request's context if its client does not want the
// answer any more.
var ErrCancelled = errors.New("the client has cancelled the request")

// The errors of sending to a client.
var (
	errAnswered = errors.New("the request has been answered")
	errFull     = errors.New("the client does not read what it is sent")
	errNoStream = errors.New("there is no stream on which the client could be told")
	errModern   = errors.New("a client of " + Version2026_07_28 + " cannot be asked by a request: answer input_required")
)

// Request is a request of a client.
type Request struct {
	// Session is never nil. A modern request over HTTP has one of its own, without ID.
	Session *Session
	Method  string
	// Params are as they came; nil if there were none.
	Params json.RawMessage
	// ID is as the client wrote it.
	ID json.RawMessage
	// Era and Version are those of the request. Version is empty in initialize.
	Era     Era
	Version string
	// Header is that of the HTTP request; nil on stdio.
	Header http.Header

	meta jsonobj.Object
	out  messageSink

	values context.Context // that of the HTTP request; nil on stdio
	ctx    context.Context // ends with the request; the cause says why
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	answered bool
}

// requestContext is the context of a session that also has the values of the HTTP request.
type requestContext struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c requestContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil || c.values == nil {
		return v
	}
	return c.values.Value(key)
}

// messageSink takes the messages that belong to a request, or to no request. It never waits for the
// client.
type messageSink interface {
	put(k messageKind, m *message) error
}

// messageKind says how a messageSink treats a message.
type messageKind int

const (
	kindNote   messageKind = iota // is refused if the client does not read
	kindAsk                       // likewise, and if there is no stream
	kindAnswer                    // is always taken; nil stands for an answer that must not be sent
)

// Meta is the _meta of the params; nil if there is none. It is shared and must not be changed.
func (r *Request) Meta() jsonobj.Object { return r.meta }

// Cancel ends the context of the request with a cause. It does nothing once the request has been
// answered.
func (r *Request) Cancel(cause error) { r.cancel(cause) }

// finish records that the request has its answer, and reports whether the client still wants it. A
// client that has cancelled a request does not, but a POST must be answered.
func (r *Request) finish() (wanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
	wanted = r.Header != nil || !errors.Is(context.Cause(r.ctx), ErrCancelled)
	r.cancel(nil)
	return wanted
}

// Notify sends a notification that belongs to the request: on its stream, or on the connection.
// Notifications come in order and before the response; it fails once Serve has returned, and if the
// client has left or does not read. A client that accepts no stream is not told.
func (r *Request) Notify(method string, params json.RawMessage) error {
	m := message{Method: method, Params: params}
	return r.put(kindNote, &m)
}

// Ask sends the client a request that belongs to this one, and waits for the answer. The error is
// an [*Error] if that is the answer. Clients of Modern cannot be asked, and none before it has been
// initialized.
func (r *Request) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	switch {
	case r.Era == Modern:
		return nil, errModern
	case r.Method == MethodInitialize:
		return nil, errors.New("the client cannot be asked before it has been initialized")
	}
	return r.Session.ask(ctx, r.put, method, params)
}

func (r *Request) put(k messageKind, m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return errAnswered
	}
	return r.out.put(k, m)
}

// run lets the handler answer the request.
func (r *Request) run(ctx context.Context, h Handler) (answer message) {
	answer.ID = r.ID
	defer func() {
		if p := recover(); p != nil {
			answer.Result, answer.Error = nil, Errorf(CodeInternal, "panic while serving %s: %v", r.Method, p).JSON()
		}
	}()
	result, err := h.Serve(ctx, r)
	switch {
	case err != nil:
		answer.Error = errorJSON(err)
	case len(result) == 0:
		answer.Result = json.RawMessage("{}")
	default:
		answer.Result = result
	}
	if r.Method == MethodInitialize && answer.Error == nil {
		o, _ := jsonobj.ParseObject(answer.Result)
		version := o.Text("protocolVersion")
		if version == "" {
			answer.Result, answer.Error = nil, Errorf(CodeInternal, "the answer to initialize has no protocolVersion").JSON()
			return answer
		}
		r.Session.initialized(version)
	}
	return answer
}

// errorJSON is a handler's error as it is sent.
func errorJSON(err error) json.RawMessage {
	var e *Error
	if !errors.As(err, &e) || e == nil {
		e = Errorf(CodeInternal, "%v", err)
	}
	return e.JSON()
}

// removedMethods are the methods of Legacy that Modern does not have any more.
var removedMethods = map[string]bool{
	MethodInitialize: true, MethodPing: true, MethodSetLevel: true, MethodSubscribe: true, MethodUnsubscribe: true,
	MethodTasksList: true, MethodTasksResult: true,
}

// serverMeta is the _meta of a message's params.
func serverMeta(params json.RawMessage) jsonobj.Object {
	meta, _ := jsonobj.ParseObject(jsonobj.Get(params, "_meta"))
	return meta
}

// checkMeta checks the members that every modern request must have in its _meta.
func checkMeta(method string, meta jsonobj.Object) *Error {
	version := meta.Text(MetaProtocolVersion)
	switch {
	case version == "":
		return Errorf(CodeInvalidParams, "params._meta must have %q, a string", MetaProtocolVersion)
	case version != Version2026_07_28:
		return unsupportedVersion(version)
	}
	if c := meta.Get(MetaClientCapabilities); len(c) == 0 || c[0] != '{' {
		return Errorf(CodeInvalidParams, "params._meta must have %q, an object", MetaClientCapabilities)
	}
	if removedMethods[method] {
		return Errorf(CodeMethodNotFound, "method %s is not part of %s", method, Version2026_07_28)
	}
	return nil
}

// unsupportedVersion is the error that names the versions which are spoken.
func unsupportedVersion(requested string) *Error {
	supported, _ := json.Marshal(Versions) // strings always marshal
	return Errorf(CodeUnsupportedVersion, "protocol version %q is not supported", requested).
		WithData(jsonobj.Object{
			{Key: "supported", Value: supported}, {Key: "requested", Value: jsonobj.Quote(requested)},
		}.JSON())
}

// invalidMessage is the error for text that is refused as a message.
func invalidMessage(b []byte) *Error {
	if !jsonobj.Valid(b) {
		return Errorf(CodeParse, "the message is not valid JSON")
	}
	return Errorf(CodeInvalidRequest, "%v", jsonrpc.ErrNoMessage)
}

// validID reports whether a request's id is a string or a number, as it must be.
func validID(id json.RawMessage) bool {
	return len(id) > 0 && (id[0] == '"' || id[0] == '-' || '0' <= id[0] && id[0] <= '9')
}

// errorMessage makes an error response. An id that is missing or invalid becomes null.
func errorMessage(id json.RawMessage, e *Error) *message {
	if !validID(id) {
		id = json.RawMessage("null")
	}
	return &message{ID: id, Error: e.JSON()}
}
