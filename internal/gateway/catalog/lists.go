package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// list answers a list with the lists of all servers, on one page.
func (a *aggregate) list(ctx context.Context, r *mcp.Request, member, key string, c *names) (json.RawMessage, error) {
	all, err := a.collect(ctx, r, r.Method, member, key, c)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(all)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInternal, "%v", err)
	}
	var out jsonobj.Object
	if r.Era == mcp.Modern {
		out = modernResult()
	}
	return out.Set(member, list).JSON(), nil
}

// collect gets a list of all servers that can be reached and answer in time. With a catalog the
// items get new names. Without one collect notes which server has them.
func (a *aggregate) collect(ctx context.Context, r *mcp.Request,
	method, member, key string, c *names) ([]json.RawMessage, error) {
	ctx, cancel := a.patiently(ctx)
	defer cancel()
	lists := make([][]jsonobj.Object, len(a.endpoints))
	err := a.each(ctx, r, func(i int, l *gateway.Upstream) { lists[i] = a.listOf(ctx, l, r, method, member) })
	if err != nil {
		return nil, err
	}
	var items []jsonobj.Object
	var origins []origin
	for i, list := range lists {
		for _, o := range list {
			items, origins = append(items, o), append(origins, origin{a.endpoints[i], o.Text(key)})
		}
	}
	var names []string
	if c != nil {
		names = c.name(origins)
	}
	out := make([]json.RawMessage, len(items)) // an empty list is one
	for i, o := range items {
		if names != nil {
			o = o.Set(key, jsonobj.Quote(names[i]))
		} else {
			a.resources.note(origins[i].name, origins[i].endpoint, a.endpoints)
		}
		out[i] = o.JSON()
	}
	return out, nil
}

// listOf gets the list of a server as its own endpoint shows it. If the server does not have such a
// list, or fails, the list is empty.
func (a *aggregate) listOf(ctx context.Context, l *gateway.Upstream,
	r *mcp.Request, method, member string) (all []jsonobj.Object) {
	kind := member
	if kind == "resourceTemplates" {
		kind = "resources"
	}
	if !gateway.ServerCapabilities(l.Client()).Has(kind) {
		return nil
	}
	var cursor json.RawMessage
	for range gateway.MaxPages {
		var params jsonobj.Object
		if r.Era == mcp.Modern {
			params = jsonobj.Object{{Key: "_meta", Value: r.Meta().JSON()}}
		}
		if cursor != nil {
			params = params.Set("cursor", cursor)
		}
		result, err := l.PassMethod(ctx, r, method, params.JSON())
		if err != nil {
			return all
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil {
			return all
		}
		list := o.Get(member)
		if method == mcp.MethodToolsList {
			list, _ = l.Endpoint().Tools().Show(l, list)
		}
		var page []json.RawMessage
		if json.Unmarshal(list, &page) != nil {
			return all
		}
		for _, raw := range page {
			if item, err := jsonobj.ParseObject(raw); err == nil {
				all = append(all, item)
			}
		}
		if cursor = o.Get("nextCursor"); jsonobj.IsNull(cursor) {
			break
		}
	}
	if method == mcp.MethodToolsList {
		l.Endpoint().MarkReady()
	}
	return all
}

// resource passes a request on to the server that listed a resource, or else to the first that does
// not refuse.
func (a *aggregate) resource(ctx context.Context, r *mcp.Request, uri string) (json.RawMessage, error) {
	var refused error
	for _, e := range a.resources.first(uri, a.endpoints) {
		l, err := a.connect(ctx, e, r)
		if err != nil {
			refused = errors.Join(refused, e.Unreachable(err))
			continue
		}
		if !gateway.ServerCapabilities(l.Client()).Has("resources") {
			continue
		}
		result, err := e.ServeOn(ctx, l, r)
		if err == nil {
			a.resources.note(uri, e, a.endpoints)
			return result, nil
		}
		if refused == nil {
			refused = err
		}
	}
	if refused == nil {
		refused = mcp.Errorf(mcp.CodeInvalidParams, "Resource not found: %s", uri)
	}
	return nil, refused
}

// complete passes completion/complete on to the server of what is completed.
func (a *aggregate) complete(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	ref := params.Object("ref")
	if ref.Text("type") == "ref/resource" {
		return a.resource(ctx, r, ref.Text("uri"))
	}
	o, err := a.find(ctx, r, "prompts/list", a.prompts, ref.Text("name"))
	if err != nil {
		return nil, err
	}
	if o.endpoint == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "Unknown prompt: %s", ref.Text("name"))
	}
	r.Params = params.Set("ref", slices.Clone(ref).Set("name", jsonobj.Quote(o.name)).JSON()).JSON()
	return a.serveAt(ctx, o.endpoint, r)
}

// listen serves a modern client that wants to be told of changes of all servers.
func (a *aggregate) listen(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	granted := params.Object("notifications")
	// This comes before the client knows that it listens. From then on it is told of a server that it
	// is answered without.
	arriving := make([]*arrival, len(a.endpoints))
	for i, e := range a.endpoints {
		arriving[i] = a.arrive(e, r)
	}
	if err := a.tasks.Acknowledge(r, jsonobj.Object{
		{Key: "notifications", Value: granted.JSON()}, {Key: "_meta", Value: gateway.SubscriptionMeta(r)},
	}.JSON()); err != nil {
		return nil, err
	}
	a.tasks.Mute(ctx, r)
	var all sync.WaitGroup
	for i, e := range a.endpoints {
		all.Go(func() { a.listenAt(ctx, e, r, granted, arriving[i]) })
	}
	all.Wait()
	<-ctx.Done()
	return gateway.Listened(ctx, r)
}

// listenAt listens for a client at one server until the context ends or the server refuses. It
// tries again if the server cannot be reached, takes long to connect, or has cut the subscription.
// Nobody knows what has changed meanwhile, so the client is told that everything has.
func (a *aggregate) listenAt(ctx context.Context, e *gateway.Endpoint,
	r *mcp.Request, wants jsonobj.Object, v *arrival) {
	again := false
	for delay := gateway.RelistenFirst; ; delay, v = min(2*delay, gateway.RelistenLast), a.arrive(e, r) {
		select {
		case <-v.done:
		case <-ctx.Done():
			return
		}
		if l, err := v.upstream, v.err; err == nil {
			again = again || a.wasMissed(v)
			_, err = l.Listen(ctx, r, func() {
				delay = gateway.RelistenFirst
				if again {
					tellAll(l, r, wants)
				}
			})
			var said *mcp.Error
			if errors.As(err, &said) {
				return
			}
		}
		again = true
		pause := time.NewTimer(delay)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// tellAll tells a modern client that every list of the server has changed, as far as it wants to
// hear of them.
func tellAll(l *gateway.Upstream, r *mcp.Request, wants jsonobj.Object) {
	for method, wish := range gateway.ListChanges {
		if string(wants.Get(wish)) == "true" &&
			gateway.ServerCapabilities(l.Client()).Has(strings.TrimSuffix(wish, "ListChanged")) {
			// A failure means that the client has gone, which ends the request.
			_ = r.Notify(method, jsonobj.Object{{Key: "_meta", Value: gateway.SubscriptionMeta(r)}}.JSON())
		}
	}
}
