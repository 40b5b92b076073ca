package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// request is a request with its sender.
type request struct {
	*mcp.Request
	caller access.Identity
	// agent says that a rollout sends it, whatever its token.
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

// capabilities are the client's capabilities.
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

// wantsTask reports whether the client wants its call as a task. A legacy client says so; a modern
// client that knows tasks always gets one.
func (q *request) wantsTask(params jsonobj.Object) (bool, error) {
	if q.Era == mcp.Modern {
		return taskwire.Declares(q.capabilities()), nil
	}
	wish := params.Get("task")
	if jsonobj.IsNull(wish) {
		return false, nil
	}
	if _, err := jsonobj.ParseObject(wish); err != nil {
		return false, mcp.Errorf(mcp.CodeInvalidParams, "params.task: %v", err)
	}
	return true, nil
}

// result converts a document to the result of a call.
func (q *request) result(document any) (json.RawMessage, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return q.inEra(toolResult(text, false)), nil
}

// refusal is the result of a failed call.
func (q *request) refusal(text string) json.RawMessage {
	content, _ := json.Marshal([]map[string]string{{"type": "text", "text": text}}) // strings always marshal
	return q.inEra(jsonobj.Object{{Key: "content", Value: content}, {Key: "isError", Value: json.RawMessage("true")}})
}

// toolResult also has the document as text, for clients that know no structured results.
func toolResult(document json.RawMessage, isError bool) jsonobj.Object {
	content, _ := json.Marshal([]map[string]string{{"type": "text", "text": string(document)}}) // strings always marshal
	o := jsonobj.Object{{Key: "content", Value: content}, {Key: "structuredContent", Value: document},
		{Key: "isError", Value: json.RawMessage("false")}}
	if isError {
		o = o.Set("isError", json.RawMessage("true"))
	}
	return o
}

func (q *request) inEra(o jsonobj.Object) json.RawMessage {
	if q.Era == mcp.Modern {
		return complete(o)
	}
	return o.JSON()
}

// complete turns an object into a modern result.
func complete(o jsonobj.Object, meta ...jsonobj.Member) json.RawMessage {
	said := append(jsonobj.Object{{Key: mcp.MetaServerInfo, Value: mcp.Info()}}, meta...)
	return o.Set("resultType", json.RawMessage(`"complete"`)).Set("_meta", said.JSON()).JSON()
}
