package gateway

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Tasks gives the clients of an access tasks to wait for. It learns of the sessions of clients, and
// of everything that names a task.
type Tasks interface {
	// Policy is the policy of an endpoint; if nil, the endpoint keeps its own.
	Policy(e *Endpoint) Policy
	// Start is called when all endpoints are there. access names the access in a store.
	Start(access string) error
	// Leave is called before the connections are closed, Close when they have been.
	Leave()
	Close()

	// ServerOptions are the options of an endpoint's handler. open makes the upstreams of a session of
	// an earlier process.
	ServerOptions(endpoint string, open Opener) mcp.ServerOptions
	// Opened is called for each legacy session that initialize has opened, Closed for its end.
	Opened(ctx context.Context, endpoint string, s *mcp.Session,
		initializeResult json.RawMessage, capabilities jsonobj.Object, info json.RawMessage) error
	Closed(s *mcp.Session)

	// Offer adds tasks to the capabilities of a server.
	Offer(era mcp.Era, capabilities jsonobj.Object) jsonobj.Object
	// Serve answers requests about tasks, which need no connection to a server. ok is false for all
	// other requests.
	Serve(ctx context.Context, r *mcp.Request) (result json.RawMessage, ok bool, err error)
	// Acknowledge tells a client which subscriptions it has. Mute says that this has been done, so
	// that no server does it again.
	Acknowledge(r *mcp.Request, params json.RawMessage) error
	Mute(ctx context.Context, r *mcp.Request)
	// Linger keeps a subscription open for the tasks in it when its server has no more to tell.
	Linger(ctx context.Context, r *mcp.Request)

	// Notification changes a notification of a server. ok is false if the client does not get it.
	Notification(l *Upstream, method string, params json.RawMessage) (forward json.RawMessage, ok bool)
	// Question finds who answers a question that a legacy server asks outside of calls. ask is nil if
	// that is whoever has made the call.
	Question(l *Upstream, params json.RawMessage) (ask mcptask.Asker, forward json.RawMessage)
}

// Opener makes the upstreams of a legacy session to the servers of an endpoint, which are not
// connected.
type Opener func(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error

// noTasks is for clients that get no tasks.
type noTasks struct{}

func (noTasks) Policy(*Endpoint) Policy { return nil }
func (noTasks) Start(string) error      { return nil }
func (noTasks) Leave()                  {}
func (noTasks) Close()                  {}
func (noTasks) ServerOptions(string, Opener) mcp.ServerOptions {
	return mcp.ServerOptions{Hosts: []string{"*"}} // the gateway has looked at them
}
func (noTasks) Opened(context.Context, string, *mcp.Session, json.RawMessage, jsonobj.Object, json.RawMessage) error {
	return nil
}
func (noTasks) Offer(_ mcp.Era, c jsonobj.Object) jsonobj.Object { return c }
func (noTasks) Closed(*mcp.Session)                              {}
func (noTasks) Serve(context.Context, *mcp.Request) (json.RawMessage, bool, error) {
	return nil, false, nil
}
func (noTasks) Acknowledge(r *mcp.Request, params json.RawMessage) error {
	return r.Notify(mcp.NoteAcknowledged, params)
}
func (noTasks) Mute(context.Context, *mcp.Request)   {}
func (noTasks) Linger(context.Context, *mcp.Request) {}
func (noTasks) Notification(_ *Upstream, _ string, params json.RawMessage) (json.RawMessage, bool) {
	return params, true
}
func (noTasks) Question(_ *Upstream, params json.RawMessage) (mcptask.Asker, json.RawMessage) {
	return nil, params
}
