package mcpserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// instructions tell a model what the server is for.
const instructions = `evalrun runs eval sets against AI agents. run_eval_set starts a run, which goes on whatever becomes of this connection; ` +
	`get_results says how it is and what came of it. A run may be suspended for days while its agents wait: list_triggers says for what.`

// Serve implements mcp.Handler.
func (s *Server) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	q := newRequest(ctx, r)
	if result, ok, err := taskwire.Serve(ctx, s.tasks, r); ok {
		return result, err
	}
	switch r.Method {
	case mcp.MethodInitialize:
		return s.initialize(ctx, q)
	case mcp.MethodDiscover:
		if r.Era == mcp.Modern {
			return discover(), nil
		}
	case mcp.MethodToolsList:
		return s.tools.list(q)
	case mcp.MethodToolsCall:
		return s.tools.call(ctx, q)
	case mcp.MethodListen:
		if r.Era == mcp.Modern {
			one, err := newSubscription(ctx, s.tasks, q)
			if err != nil {
				return nil, err
			}
			return one.serve(ctx)
		}
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
}

// Notified implements mcp.Handler.
func (s *Server) Notified(*mcp.Session, string, json.RawMessage) {}

// Closed implements mcp.Handler. The runs that were started go on.
func (s *Server) Closed(wire *mcp.Session) { s.sessions.closed(wire) }

// hello returns the members that both handshakes share.
func hello(capabilities jsonobj.Object) jsonobj.Object {
	return jsonobj.Object{
		{Key: "capabilities", Value: capabilities.Set("tools", mcp.EmptyObject).JSON()},
		{Key: "instructions", Value: jsonobj.Quote(instructions)},
	}
}

// idempotency says that a call of run_eval_set with a known key starts nothing.
var idempotency = jsonobj.Member{Key: mcp.MetaIdempotency, Value: json.RawMessage(`{"version":1}`)}

// initialize opens a legacy session. It is recorded, so that its client can continue it in another
// process.
func (s *Server) initialize(ctx context.Context, q *request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	version := params.Text("protocolVersion")
	if !slices.Contains(mcp.LegacyVersions, version) {
		version = mcp.LegacyVersions[0]
	}
	if err := s.sessions.open(ctx, q, version, params); err != nil {
		return nil, internal(s.log, "recording the session", err)
	}
	return hello(jsonobj.Object{{Key: "tasks", Value: taskwire.LegacyOffer}}).
		Set("protocolVersion", jsonobj.Quote(version)).
		Set("serverInfo", mcp.Info()).Set("_meta", jsonobj.Object{idempotency}.JSON()).JSON(), nil
}

// discover answers a modern client that asks what the server is.
func discover() json.RawMessage {
	versions, _ := json.Marshal(mcp.Versions) // strings always marshal
	extensions := jsonobj.Object{{Key: mcp.ExtensionTasks, Value: mcp.EmptyObject}}
	return complete(hello(jsonobj.Object{{Key: "extensions", Value: extensions.JSON()}}).
		Set("supportedVersions", versions).
		Set("ttlMs", json.RawMessage("0")).Set("cacheScope", json.RawMessage(`"private"`)), idempotency)
}
