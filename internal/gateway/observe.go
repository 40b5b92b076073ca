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

// Observer is told of every request. Its methods must not block. Nothing that it is told is a
// secret of a client.
type Observer interface {
	// Served is told of a request of MCP when it has been answered, of a subscription when it has
	// ended.
	Served(s Served)
	// Refused is told of a request of HTTP that was not one of a client.
	Refused(r Refused)
}

// Served is a request of MCP and what became of it. What comes from the client may be any text.
type Served struct {
	// Endpoint is the name of the endpoint, Method that of the request, Name that of the tool or
	// prompt.
	Endpoint, Method, Name string
	Era                    mcp.Era
	// Session is the beginning of the id of a legacy session. Client is what the client calls
	// itself, where the request says it.
	Session, Client string
	Began           time.Time
	Took            time.Duration
	// Outcome is how it ended, Code the code of the error if it was one.
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
	// Reason is token, host or endpoint: what was wrong.
	Reason string
	// Remote is the address that it came from, Method that of HTTP.
	Remote, Method string
}

// Observe has an observer told of the requests of accesses that are opened from now on, and of
// those that are refused. It is called before the gateway is used.
func (g *Gateway) Observe(o Observer) { g.observer = o }

// Page serves a page beside the endpoints, such as /metrics, to whoever bears a token of an access.
// It is called before the gateway is used.
func (g *Gateway) Page(path string, h http.Handler) { g.pages[path] = h }

// observed is a handler whose requests an observer is told of.
type observed struct {
	mcp.Handler
	endpoint string
	o        Observer
}

// observe puts the gateway's observer before a handler.
func (g *Gateway) observe(endpoint string, h mcp.Handler) mcp.Handler {
	if g.observer == nil {
		return h
	}
	return observed{h, endpoint, g.observer}
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
