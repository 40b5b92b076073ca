package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// initialize answers a legacy client with what its server says.
func (e *Endpoint) initialize(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	if err := e.open(r.Session, params.Text("protocolVersion"),
		params.Object("capabilities"), params.Get("clientInfo")); err != nil {
		return nil, e.Unreachable(err)
	}
	l, err := e.Upstream(ctx, r)
	if err != nil {
		return nil, e.Unreachable(err)
	}
	if !l.Offered().hasTools {
		e.MarkReady()
	}
	return l.initializeResult(mcp.Legacy), nil
}

// discover answers a modern client with what the server says.
func (e *Endpoint) discover(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	l, err := e.Upstream(ctx, r)
	if err != nil {
		return nil, e.Unreachable(err)
	}
	if !l.Offered().hasTools {
		e.MarkReady()
	}
	return l.initializeResult(mcp.Modern), nil
}

// initializeResult is what a client of an era is told of the server. It is the server's own result,
// with the members that the client's protocol wants.
func (l *Upstream) initializeResult(era mcp.Era) json.RawMessage {
	c := l.Client()
	said, _ := jsonobj.ParseObject(c.InitializeResult())
	meta := said.Object("_meta")
	capabilities, meta := l.e.policy.InitializeResult(era, said.Object("capabilities"), meta)
	var out jsonobj.Object
	switch {
	case era == c.Era():
		out = slices.Clone(said)
	case era == mcp.Legacy:
		version := mcp.LegacyVersions[0]
		if slices.Contains(mcp.LegacyVersions, l.version) {
			version = l.version
		}
		info := meta.Get(mcp.MetaServerInfo)
		if info == nil {
			info = jsonobj.Object{
				{Key: "name", Value: jsonobj.Quote(l.e.server.Name)}, {Key: "version", Value: json.RawMessage(`"0"`)},
			}.JSON()
		}
		meta = meta.Delete(mcp.MetaServerInfo)
		out = slices.Clone(said).Delete("supportedVersions", "resultType", "ttlMs", "cacheScope").
			Set("protocolVersion", jsonobj.Quote(version)).Set("serverInfo", info)
	default:
		meta = meta.Set(mcp.MetaServerInfo, said.Get("serverInfo"))
		out = slices.Clone(said).Delete("protocolVersion", "serverInfo").Set("resultType", json.RawMessage(`"complete"`)).
			Set("ttlMs", json.RawMessage("0")).Set("cacheScope", json.RawMessage(`"private"`))
	}
	if era == mcp.Modern {
		versions, _ := json.Marshal(mcp.Versions) // strings always marshal
		out = out.Set("supportedVersions", versions)
	}
	out = out.Set("capabilities", capabilities.JSON()).Delete("_meta")
	if len(meta) > 0 {
		out = out.Set("_meta", meta.JSON())
	}
	return out.JSON()
}
