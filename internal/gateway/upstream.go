package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Upstream is one legacy session of a client at the server, or the shared one of modern requests.
// It passes requests on over its connection.
type Upstream struct {
	*connection
	e *Endpoint
	// session is nil for modern clients. key is their spelling of their capabilities.
	session *mcp.Session
	key     string
	// version, capabilities and info are those of the client.
	version      string
	capabilities jsonobj.Object
	info         json.RawMessage

	logs      logLevel
	inFlight  inFlightCalls
	listeners listeners
	follower  follower
}

// newUpstream makes an upstream that is not connected. session is nil for modern clients.
func newUpstream(e *Endpoint, session *mcp.Session, capabilities jsonobj.Object, info json.RawMessage) *Upstream {
	l := &Upstream{e: e, session: session, capabilities: capabilities, info: info}
	l.connection = &connection{connector: l, ctx: e.ctx}
	l.inFlight = inFlightCalls{session: session, capabilities: capabilities}
	l.follower = follower{session: session, ctx: e.ctx, notified: l.notified}
	return l
}

// Endpoint returns the endpoint of the upstream.
func (l *Upstream) Endpoint() *Endpoint { return l.e }

// Session is the legacy session of the client, nil for modern clients.
func (l *Upstream) Session() *mcp.Session { return l.session }

// Capabilities are the client's capabilities.
func (l *Upstream) Capabilities() jsonobj.Object { return l.capabilities }

// Info is the client's name for itself.
func (l *Upstream) Info() json.RawMessage { return l.info }

// ErrorText is an error of a connection, for people.
func (l *Upstream) ErrorText(err error) string {
	return fmt.Sprintf("MCP server %q: %v", l.e.server.Name, err)
}

// serves reports whether the connected upstream serves modern requests with this _meta.
func (l *Upstream) serves(meta jsonobj.Object) bool {
	return l.Client().Era() == mcp.Modern || l.key == string(meta.Get(mcp.MetaClientCapabilities))
}

// dial implements connector.
func (l *Upstream) dial(ctx context.Context) (*mcp.Client, error) {
	o := mcp.ClientOptions{
		Protocol: l.e.server.Protocol, Info: l.info, Notified: l.notifiedOutside, Asked: l.askedOutside,
		Capabilities: l.e.policy.Capabilities(mcp.Legacy, l.capabilities.JSON()),
	}
	if slices.Contains(mcp.LegacyVersions, l.version) {
		o.Version = l.version
	}
	if !l.e.policy.WantsTasks() && l.session != nil {
		// Messages that need no translation lose nothing. But a policy that suspends wants the tasks of
		// modern servers.
		o.First = mcp.Legacy
	}
	c, err := mcp.Connect(ctx, l.e.server.Target, o)
	if err != nil && ctx.Err() == nil {
		l.e.readiness.fail(err)
	}
	return c, err
}

// connected implements connector. It tells a legacy server what the clients had told it on the old
// connection, and begins to listen at a modern one.
func (l *Upstream) connected(ctx context.Context, c, old *mcp.Client) {
	if old != nil {
		l.e.retire(old)
		l.e.tools.Forget()
	}
	if c.Era() == mcp.Legacy {
		if level := l.logs.get(); level != "" {
			// If this fails, the server has been replaced by another one.
			_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)})
		}
		uris := append(l.follower.uris(), l.listeners.uris()...)
		slices.Sort(uris)
		for _, uri := range slices.Compact(uris) {
			_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}) // as above
		}
	}
	l.follower.follow(ctx, c)
}

// closing implements connector.
func (l *Upstream) closing() { l.follower.unfollow() }
