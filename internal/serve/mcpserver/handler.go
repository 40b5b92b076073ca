package mcpserver

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/serve/access"
)

// instructions tell a model what the server is for.
const instructions = `evalrun runs eval sets against AI agents. run_eval_set starts a run, which goes on whatever becomes of this connection; ` +
	`get_results says how it is and what came of it. A run may be suspended for days while its agents wait: list_triggers says for what.`

// Serve implements mcp.Handler.
func (s *Server) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	q := newRequest(ctx, r)
	if result, ok, err := taskwire.Serve(ctx, tasks{s}, r); ok {
		return result, err
	}
	switch r.Method {
	case mcp.MethodInitialize:
		return s.initialize(ctx, q)
	case mcp.MethodDiscover:
		if r.Era == mcp.Modern {
			return s.discover(), nil
		}
	case mcp.MethodToolsList:
		return s.listTools(q)
	case mcp.MethodToolsCall:
		return s.call(ctx, q)
	case mcp.MethodListen:
		if r.Era == mcp.Modern {
			return s.listen(ctx, q)
		}
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
}

// Notified implements mcp.Handler.
func (s *Server) Notified(*mcp.Session, string, json.RawMessage) {}

// request is a request with who sends it.
type request struct {
	*mcp.Request
	caller access.Identity
	// agent says that a rollout sends it, whoever's token it bears.
	agent bool
	// session is the legacy session; nil in Modern.
	session *session
}

func newRequest(ctx context.Context, r *mcp.Request) *request {
	q := &request{Request: r, caller: access.From(ctx), agent: r.Header.Get(mcp.HeaderCallingJob) != ""}
	if q.session, _ = r.Session.Value().(*session); q.session != nil {
		q.session.agent.Store(q.agent)
	}
	return q
}

// capabilities are what the client can do.
func (q *request) capabilities() jsonobj.Object {
	if q.Era == mcp.Modern {
		return q.Meta().Object(mcp.MetaClientCapabilities)
	}
	if q.session == nil {
		return nil
	}
	return q.session.capabilities
}

// mayAnswer reports whether the caller may answer questions. An agent must not answer what it has
// asked itself, so no rollout answers any, whatever its token allows.
func (q *request) mayAnswer() bool {
	return q.caller.May(access.Deliver) && !q.agent
}

// hello is what both handshakes say.
func (s *Server) hello(capabilities jsonobj.Object) jsonobj.Object {
	return jsonobj.Object{
		{Key: "capabilities", Value: capabilities.Set("tools", mcp.EmptyObject).JSON()},
		{Key: "instructions", Value: jsonobj.Quote(instructions)},
	}
}

// idempotency says that a call of run_eval_set with a key starts nothing again.
var idempotency = jsonobj.Member{Key: mcp.MetaIdempotency, Value: json.RawMessage(`{"version":1}`)}

// initialize opens a legacy session. It is recorded, so that its client can go on with it in another
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
	if err := s.open(ctx, q, version, params); err != nil {
		return nil, s.internal("recording the session", err)
	}
	return s.hello(jsonobj.Object{{Key: "tasks", Value: taskwire.LegacyOffer}}).Set("protocolVersion", jsonobj.Quote(version)).
		Set("serverInfo", mcp.Info()).Set("_meta", jsonobj.Object{idempotency}.JSON()).JSON(), nil
}

// discover answers a modern client's question what the server is.
func (s *Server) discover() json.RawMessage {
	versions, _ := json.Marshal(mcp.Versions) // strings always marshal
	extensions := jsonobj.Object{{Key: mcp.ExtensionTasks, Value: mcp.EmptyObject}}
	return complete(s.hello(jsonobj.Object{{Key: "extensions", Value: extensions.JSON()}}).Set("supportedVersions", versions).
		Set("ttlMs", json.RawMessage("0")).Set("cacheScope", json.RawMessage(`"private"`)), idempotency)
}

// complete makes an object a modern result.
func complete(o jsonobj.Object, meta ...jsonobj.Member) json.RawMessage {
	said := append(jsonobj.Object{{Key: mcp.MetaServerInfo, Value: mcp.Info()}}, meta...)
	return o.Set("resultType", json.RawMessage(`"complete"`)).Set("_meta", said.JSON()).JSON()
}
