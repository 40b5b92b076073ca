package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Observer is told of every request, and of servers that are not there. Its methods must not block. It is
// told no secret of a client.
type Observer interface {
	// Served is called when a request of MCP has been answered or, for a subscription, when it has
	// ended.
	Served(s Served)
	// Refused is called for a request of HTTP that did not come from a client.
	Refused(r Refused)
	// Connected is called when a connection to a server was made, or could not be made, even if no
	// client is told of it. The error names the server.
	Connected(server string, err error)
}

// Served is a request of MCP and its outcome. Texts that come from the client may be anything.
type Served struct {
	// Endpoint is the name of the endpoint, Method that of the request, Name that of the tool or
	// prompt.
	Endpoint, Method, Name string
	Era                    mcp.Era
	// Session is the beginning of the id of a legacy session. Client is the name of the client, where
	// the request gives it.
	Session, Client string
	Began           time.Time
	Took            time.Duration
	// Outcome is how the request ended. Code is the code of the error if there was one.
	Outcome string
	Code    int64
}

// How requests end.
const (
	ServedOK        = "ok"
	ServedToolError = "tool_error" // the tool says that it has failed
	ServedError     = "error"
	ServedCancelled = "cancelled" // the client did not want the answer any more
)

// Refused is a request that was refused.
type Refused struct {
	Status int
	// Reason says what was wrong: token, host or endpoint.
	Reason string
	// Remote is the address of the client. Method is that of HTTP.
	Remote, Method string
}

// Observe tells an observer of the requests of accesses that are opened from now on, and of refused
// requests. It is called before the gateway is used.
func (g *Gateway) Observe(o Observer) { g.observer = o }

// Page serves a page beside the endpoints, such as /metrics, to every client that bears a token of
// an access. It is called before the gateway is used.
func (g *Gateway) Page(path string, h http.Handler) { g.pages[path] = h }

// observed is a handler that tells an observer of its requests.
type observed struct {
	mcp.Handler
	endpoint string
	o        Observer
}

// observe wraps a handler so that the gateway's observer sees its requests.
func (g *Gateway) observe(endpoint string, h mcp.Handler) mcp.Handler {
	if g.observer == nil {
		return h
	}
	return observed{h, endpoint, g.observer}
}

// tellConnected tells the observer what has come of connecting to the server of an endpoint.
func (e *Endpoint) tellConnected(err error) {
	switch {
	case e.observer == nil:
	case err == nil:
		e.observer.Connected(e.server.Name, nil)
	default:
		if refused := unauthorized(e.server.Name, err); refused != nil {
			e.observer.Connected(e.server.Name, errors.New(refused.Message))
			return
		}
		e.observer.Connected(e.server.Name, &UnreachableError{e.server.Name, err})
	}
}

// Serve implements mcp.Handler.
func (h observed) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	s := h.begin(r)
	result, err := h.Handler.Serve(ctx, r)
	h.end(s, result, err)
	return result, err
}

func (h observed) begin(r *mcp.Request) Served {
	s := Served{Endpoint: h.endpoint, Method: r.Method, Era: r.Era, Began: time.Now()}
	info := r.Meta().Get(mcp.MetaClientInfo)
	switch r.Method {
	case mcp.MethodToolsCall, "prompts/get":
		s.Name, _ = jsonobj.Unquote(jsonobj.Get(r.Params, "name"))
	case mcp.MethodInitialize:
		info = jsonobj.Get(r.Params, "clientInfo")
	}
	s.Client, _ = jsonobj.Unquote(jsonobj.Get(info, "name"))
	if id := r.Session.ID(); r.Era == mcp.Legacy {
		s.Session = id[:min(len(id), 8)]
	}
	return s
}

func (h observed) end(s Served, result json.RawMessage, err error) {
	s.Took, s.Outcome = time.Since(s.Began), ServedOK
	var said *mcp.Error
	switch {
	case errors.Is(err, mcp.ErrCancelled):
		s.Outcome = ServedCancelled
	case errors.As(err, &said):
		s.Outcome, s.Code = ServedError, said.Code
	case err != nil:
		s.Outcome, s.Code = ServedError, mcp.CodeInternal
	case s.Method == mcp.MethodToolsCall && string(jsonobj.Get(result, "isError")) == "true":
		s.Outcome = ServedToolError
	}
	h.o.Served(s)
}
