// Package catalog serves at one endpoint what all servers of an access have. It joins their lists,
// gives tools and prompts names that no two servers share, and passes each request on to its
// server. It knows endpoints and upstreams, but not what becomes of calls.
package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// aggregate serves at one endpoint what all servers of an access have. Tools and prompts get names
// of their own there. Resources keep their URIs; if several servers have one URI, it belongs to the
// first.
type aggregate struct {
	name      string
	endpoints []*gateway.Endpoint
	tasks     gateway.Tasks
	// patience is how long a server may take to answer a request to all servers. After that its part
	// is left out.
	patience time.Duration
	// connecting is how long a server may take to connect. After that its part is left out, and the
	// client is told when the server is there.
	connecting time.Duration
	arrivals   arrivals

	tools, prompts *names
	resources      routes
}

const defaultPatience = 10 * time.Second

// Combine makes one endpoint with a name for all servers; see [AccessOptions].
func Combine(name string) func(endpoints []*gateway.Endpoint, tasks gateway.Tasks) gateway.Combined {
	return func(endpoints []*gateway.Endpoint, tasks gateway.Tasks) gateway.Combined {
		return newAggregate(name, endpoints, tasks)
	}
}

func newAggregate(name string, endpoints []*gateway.Endpoint, tasks gateway.Tasks) *aggregate {
	a := &aggregate{name: name, endpoints: endpoints, tasks: tasks, patience: defaultPatience,
		connecting: defaultConnecting, tools: newNames(endpoints), prompts: newNames(endpoints)}
	a.arrivals.running = map[arrivalOf]*arrival{}
	a.resources.byURI = map[string]*gateway.Endpoint{}
	return a
}

// aggregateSession is a legacy session: an upstream for each server.
type aggregateSession struct {
	upstreams map[*gateway.Endpoint]*gateway.Upstream
	// ctx ends with the session.
	ctx context.Context
	end context.CancelFunc
}

// Name implements gateway.Combined.
func (a *aggregate) Name() string { return a.name }

// Open makes the upstreams of a legacy session, which are not connected.
func (a *aggregate) Open(s *mcp.Session, version string, capabilities jsonobj.Object, info json.RawMessage) error {
	session := &aggregateSession{upstreams: map[*gateway.Endpoint]*gateway.Upstream{}}
	session.ctx, session.end = context.WithCancel(context.Background())
	for _, e := range a.endpoints {
		session.upstreams[e] = e.NewUpstream(s, version, capabilities, info)
	}
	s.SetValue(session)
	for _, l := range session.upstreams {
		if err := l.Endpoint().Upstreams().Adopt(l); err != nil {
			session.close()
			return err
		}
	}
	return nil
}

// close removes the upstreams from their endpoints, and ends the work for the session.
func (s *aggregateSession) close() {
	s.end()
	for e, l := range s.upstreams {
		e.Upstreams().Release(l)
	}
}

// connect returns the connected upstream of a request's client to a server.
func (a *aggregate) connect(ctx context.Context, e *gateway.Endpoint, r *mcp.Request) (*gateway.Upstream, error) {
	if r.Era == mcp.Modern {
		return e.Upstream(ctx, r)
	}
	session, _ := r.Session.Value().(*aggregateSession)
	if session == nil {
		return nil, gateway.ErrClosed
	}
	return session.upstreams[e], session.upstreams[e].Connect(ctx)
}

// Serve implements mcp.Handler.
func (a *aggregate) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == mcp.MethodInitialize {
		return a.initialize(ctx, r)
	}
	if result, ok, err := a.tasks.Serve(ctx, r); ok {
		return result, err
	}
	switch r.Method {
	case mcp.MethodDiscover:
		return a.initializeResult(ctx, r, "")
	case mcp.MethodToolsList:
		return a.list(ctx, r, "tools", "name", a.tools)
	case "prompts/list":
		return a.list(ctx, r, "prompts", "name", a.prompts)
	case "resources/list":
		return a.list(ctx, r, "resources", "uri", nil)
	case "resources/templates/list":
		return a.list(ctx, r, "resourceTemplates", "uriTemplate", nil)
	case mcp.MethodToolsCall:
		return a.named(ctx, r, mcp.MethodToolsList, a.tools, "Unknown tool")
	case "prompts/get":
		return a.named(ctx, r, "prompts/list", a.prompts, "Unknown prompt")
	case "completion/complete":
		return a.complete(ctx, r)
	case "resources/read", mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		params, _ := jsonobj.ParseObject(r.Params)
		return a.resource(ctx, r, params.Text("uri"))
	case mcp.MethodSetLevel:
		return a.setLevel(ctx, r)
	case mcp.MethodListen:
		return a.listen(ctx, r)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
}

func (a *aggregate) initialize(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	version, capabilities, info := params.Text("protocolVersion"), params.Object("capabilities"), params.Get("clientInfo")
	if !slices.Contains(mcp.LegacyVersions, version) {
		version = mcp.LegacyVersions[0]
	}
	if err := a.Open(r.Session, version, capabilities, info); err != nil {
		return nil, err
	}
	result, err := a.initializeResult(ctx, r, version)
	if err == nil {
		err = a.tasks.Opened(ctx, a.name, r.Session, result, capabilities, info)
	}
	return result, err
}

// initializeResult joins what the servers say of themselves. version is the version of a legacy
// client.
func (a *aggregate) initializeResult(ctx context.Context, r *mcp.Request, version string) (json.RawMessage, error) {
	said := make([]jsonobj.Object, len(a.endpoints))
	if err := a.each(ctx, r, func(i int, l *gateway.Upstream) {
		said[i], _ = jsonobj.ParseObject(l.Client().InitializeResult())
	}); err != nil {
		return nil, err
	}
	var capabilities jsonobj.Object
	var instructions []string
	for i, one := range said {
		if one == nil {
			capabilities = mayCome(capabilities)
		}
		if text := one.Text("instructions"); text != "" {
			instructions = append(instructions, a.endpoints[i].Server().Name+": "+text)
		}
		for _, kind := range []string{"tools", "prompts", "resources", "completions", "logging"} {
			offered := one.Object("capabilities")
			if !offered.Has(kind) || kind == "logging" && version == "" {
				continue
			}
			all := slices.Clone(capabilities.Object(kind))
			for _, flag := range []string{"listChanged", "subscribe"} {
				if string(offered.Object(kind).Get(flag)) == "true" {
					all = all.Set(flag, json.RawMessage("true"))
				}
			}
			capabilities = capabilities.Set(kind, all.JSON())
		}
	}
	info := json.RawMessage(`{"name":"evalrun","version":"1"}`)
	var out jsonobj.Object
	if version != "" {
		out = jsonobj.Object{
			{Key: "protocolVersion", Value: jsonobj.Quote(version)}, {Key: "serverInfo", Value: info},
			{Key: "capabilities", Value: a.tasks.Offer(mcp.Legacy, capabilities).JSON()},
		}
	} else {
		versions, err := json.Marshal(mcp.Versions)
		if err != nil {
			return nil, err
		}
		out = append(modernResult(), jsonobj.Object{
			{Key: "supportedVersions", Value: versions},
			{Key: "capabilities", Value: a.tasks.Offer(mcp.Modern, capabilities).JSON()},
			{Key: "_meta", Value: jsonobj.Object{{Key: mcp.MetaServerInfo, Value: info}}.JSON()},
		}...)
	}
	if len(instructions) > 0 {
		out = out.Set("instructions", jsonobj.Quote(strings.Join(instructions, "\n\n")))
	}
	return out.JSON(), nil
}

// modernResult has the members that every list has in Modern.
func modernResult() jsonobj.Object {
	return jsonobj.Object{{Key: "resultType", Value: json.RawMessage(`"complete"`)},
		{Key: "ttlMs", Value: json.RawMessage("0")}, {Key: "cacheScope", Value: json.RawMessage(`"private"`)}}
}

// named passes a request on to the server that has a tool or a prompt, under its own name there.
func (a *aggregate) named(ctx context.Context, r *mcp.Request,
	list string, c *names, unknown string) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	o, err := a.find(ctx, r, list, c, params.Text("name"))
	if err != nil {
		return nil, err
	}
	if o.endpoint == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "%s: %s", unknown, params.Text("name"))
	}
	r.Params = params.Set("name", jsonobj.Quote(o.name)).JSON()
	return a.serveAt(ctx, o.endpoint, r)
}

// find finds a tool or prompt by its name. It lists what has not been listed yet.
func (a *aggregate) find(ctx context.Context, r *mcp.Request, list string, c *names, name string) (origin, error) {
	if o, ok := c.resolve(name); ok {
		return o, nil
	}
	member := strings.TrimSuffix(list, "/list")
	if _, err := a.collect(ctx, r, list, member, "name", c); err != nil {
		return origin{}, err
	}
	o, _ := c.resolve(name)
	return o, nil
}

func (a *aggregate) serveAt(ctx context.Context, e *gateway.Endpoint, r *mcp.Request) (json.RawMessage, error) {
	l, err := a.connect(ctx, e, r)
	if err != nil {
		return nil, e.Unreachable(err)
	}
	return e.ServeOn(ctx, l, r)
}

// patiently returns a context that ends when a request to all servers takes too long.
func (a *aggregate) patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, a.patience, fmt.Errorf("it has not answered within %v", a.patience))
}

// setLevel tells all servers the level; it succeeds if one of them listens. A server that is not
// there is told when it connects.
func (a *aggregate) setLevel(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, _ := jsonobj.ParseObject(r.Params)
	if session, _ := r.Session.Value().(*aggregateSession); session != nil && gateway.IsLogLevel(params.Text("level")) {
		for _, l := range session.upstreams {
			if !l.IsConnected() {
				l.SetLogLevel(params.Text("level"))
			}
		}
	}
	ctx, cancel := a.patiently(ctx)
	defer cancel()
	errs := make([]error, len(a.endpoints))
	err := a.each(ctx, r, func(i int, l *gateway.Upstream) { _, errs[i] = l.SetLevel(ctx, r) })
	if err == nil && !slices.Contains(errs, nil) {
		err = errs[0]
	}
	return mcp.EmptyObject, err
}

// Notified implements mcp.Handler.
func (a *aggregate) Notified(s *mcp.Session, method string, params json.RawMessage) {
	session, _ := s.Value().(*aggregateSession)
	if session == nil || method == mcp.NoteInitialized {
		return
	}
	for _, e := range a.endpoints {
		if c := session.upstreams[e].Client(); c != nil && c.Era() == mcp.Legacy {
			ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
			_ = c.Notify(ctx, method, params) // a notification has no answer that could say that the server has gone
			cancel()
		}
	}
}

// Closed implements mcp.Handler.
func (a *aggregate) Closed(s *mcp.Session) {
	a.tasks.Closed(s)
	session, _ := s.Value().(*aggregateSession)
	if session == nil {
		return
	}
	session.close()
	for _, l := range session.upstreams {
		l.Close()
	}
}
