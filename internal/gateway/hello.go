package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// MetaJob is the key under which servers advertise jobs, and under which a call says that its caller can wait for one
// (facts: UiPath's uipath.com/job contract, version 1).
const MetaJob = "uipath.com/job"

// offers are what a server said of itself, as far as the gateway acts on it.
type offers struct {
	// Jobs is the version of the uipath.com/job contract, 0 for none.
	Jobs int
	// Deduplicates says that calls with an idempotency key that came before start nothing.
	Deduplicates bool
	// Tasks says that tools can be called as tasks: of 2025-11-25 if the server is legacy, else by the extension.
	Tasks bool
	// hasTools says that the server has tools at all.
	hasTools bool
}

// offersOf reads the answer to initialize or server/discover.
func offersOf(c *mcp.Client) (o offers) {
	hello, _ := jsonobj.ParseObject(c.Hello())
	meta, capabilities := hello.Object("_meta"), hello.Object("capabilities")
	if v := meta.Object(MetaJob).Get("version"); len(v) > 0 && v[0] >= '1' && v[0] <= '9' && json.Unmarshal(v, &o.Jobs) != nil {
		o.Jobs = 0 // not an integer
	}
	o.Jobs = min(o.Jobs, 1)
	o.Deduplicates = meta.Has(MetaIdempotency)
	o.hasTools = capabilities.Has("tools")
	if c.Era() == mcp.Legacy {
		o.Tasks = capabilities.Object("tasks").Object("requests").Object("tools").Has("call")
	} else {
		o.Tasks = capabilities.Object("extensions").Has(mcp.ExtensionTasks)
	}
	return o
}

// ServerCapabilities are what a server offers.
func ServerCapabilities(c *mcp.Client) jsonobj.Object {
	hello, _ := jsonobj.ParseObject(c.Hello())
	return hello.Object("capabilities")
}

// WithoutExtension takes the extension for tasks out of the capabilities of a server.
func WithoutExtension(capabilities jsonobj.Object) jsonobj.Object {
	extensions := capabilities.Object("extensions")
	if !extensions.Has(mcp.ExtensionTasks) {
		return capabilities
	}
	if extensions = extensions.Delete(mcp.ExtensionTasks); len(extensions) == 0 {
		return capabilities.Delete("extensions")
	}
	return capabilities.Set("extensions", extensions.JSON())
}

// initialize answers a legacy client with what its server says.
func (e *Endpoint) initialize(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	if err := e.open(r.Session, params.Text("protocolVersion"), params.Object("capabilities"), params.Get("clientInfo")); err != nil {
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

// initializeResult is what a client of an era is told of the server: its own words, with the members that the client's protocol wants.
func (l *Upstream) initializeResult(era mcp.Era) json.RawMessage {
	c := l.Client()
	said, _ := jsonobj.ParseObject(c.Hello())
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
			info = jsonobj.Object{{Key: "name", Value: jsonobj.Quote(l.e.server.Name)}, {Key: "version", Value: json.RawMessage(`"0"`)}}.JSON()
		}
		meta = meta.Delete(mcp.MetaServerInfo)
		out = slices.Clone(said).Delete("supportedVersions", "resultType", "ttlMs", "cacheScope").Set("protocolVersion", jsonobj.Quote(version)).Set("serverInfo", info)
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

// MetaIdempotency is the key under which a server says that it knows metaIdempotencyKey: a call with the same key as one before starts nothing.
// Both are evalrun's own (docs/gateway.md).
const (
	MetaIdempotency    = "evalrun.dev/idempotency"
	MetaIdempotencyKey = "evalrun.dev/idempotencyKey"
)

func (l *Upstream) Offered() offers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offers
}
