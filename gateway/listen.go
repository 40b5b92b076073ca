package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
)

const (
	noteToolsChanged     = "notifications/tools/list_changed"
	notePromptsChanged   = "notifications/prompts/list_changed"
	noteResourcesChanged = "notifications/resources/list_changed"
	noteResourceUpdated  = "notifications/resources/updated"
)

// changes are the notifications that a modern client asks for by name.
var changes = map[string]string{noteToolsChanged: "toolsListChanged", notePromptsChanged: "promptsListChanged", noteResourcesChanged: "resourcesListChanged"}

// listener is a modern client's subscriptions/listen at a legacy server.
type listener struct {
	request   *mcp.Request
	wants     rawjson.Object
	resources []string
}

// listen serves a modern client's wish to be told of changes for as long as it lasts.
func (l *link) listen(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	c := l.client()
	if c.Era() == mcp.Modern {
		// The server tags what it sends with our request's id; the client knows only its own.
		call := mcp.Call{Method: r.Method, Params: withoutMeta(r.Params, hopKeys...), Capabilities: metaOf(r.Params).Object(mcp.MetaClientCapabilities).JSON(), Info: l.info}
		call.Notified = func(method string, params json.RawMessage) {
			_ = r.Notify(method, withMeta(params, mcp.MetaSubscriptionID, r.ID)) // a client that has gone ends ctx
		}
		result, err := c.Call(ctx, call)
		if err != nil {
			return nil, l.failed(err)
		}
		return result, nil
	}
	params, err := rawjson.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	n := &listener{request: r, wants: params.Object("notifications")}
	if uris := n.wants.Get("resourceSubscriptions"); uris != nil && json.Unmarshal(uris, &n.resources) != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: notifications.resourceSubscriptions: expected a list of URIs")
	}
	granted := slices.Clone(n.wants).Delete("taskIds")
	for _, uri := range n.resources {
		if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}); err != nil {
			granted = granted.Delete("resourceSubscriptions")
			break
		}
	}
	l.mu.Lock()
	l.listeners = append(l.listeners, n)
	l.mu.Unlock()
	err = r.Notify(mcp.NoteAcknowledged, rawjson.Object{
		{Key: "notifications", Value: granted.JSON()}, {Key: "_meta", Value: rawjson.Object{{Key: mcp.MetaSubscriptionID, Value: r.ID}}.JSON()},
	}.JSON())
	if err == nil {
		<-ctx.Done()
	}
	l.mu.Lock()
	l.listeners = slices.DeleteFunc(l.listeners, func(other *listener) bool { return other == n })
	var unused []string
	for _, uri := range n.resources {
		if !slices.ContainsFunc(l.listeners, func(other *listener) bool { return slices.Contains(other.resources, uri) }) {
			unused = append(unused, uri)
		}
	}
	l.mu.Unlock()
	for _, uri := range unused {
		// That the server goes on telling is no harm: nobody hears it.
		_, _ = c.Call(l.e.ctx, mcp.Call{Method: mcp.MethodUnsubscribe, Params: uriParams(uri)})
	}
	return json.RawMessage(`{"resultType":"complete"}`), nil
}

func uriParams(uri string) json.RawMessage {
	return rawjson.Object{{Key: "uri", Value: rawjson.Quote(uri)}}.JSON()
}

// notified passes on what a legacy server says outside of calls.
func (l *link) notified(method string, params json.RawMessage) {
	if method == noteToolsChanged {
		l.e.forgetTools()
	}
	if l.session != nil {
		_ = l.session.Notify(method, params) // a session that has ended does not want it
		return
	}
	l.mu.Lock()
	listeners := slices.Clone(l.listeners)
	l.mu.Unlock()
	for _, n := range listeners {
		if n.hears(method, params) {
			_ = n.request.Notify(method, withMeta(params, mcp.MetaSubscriptionID, n.request.ID)) // as above
		}
	}
}

// hears reports whether a listener has asked for a notification.
func (n *listener) hears(method string, params json.RawMessage) bool {
	if method == noteResourceUpdated {
		o, _ := rawjson.ParseObject(params)
		return slices.Contains(n.resources, o.Text("uri"))
	}
	return string(n.wants.Get(changes[method])) == "true"
}

// follows is how a legacy session is told of the changes of a modern server: by a subscription of our own.
type follows struct {
	resources []string
	end       context.CancelFunc
	ended     chan struct{}
}

// follow begins to listen at a modern server for a legacy session, or begins anew with other resources.
func (l *link) follow() {
	c := l.client()
	if l.session == nil || c.Era() != mcp.Modern {
		return
	}
	l.unfollow()
	hello, _ := rawjson.ParseObject(c.Hello())
	capabilities := hello.Object("capabilities")
	l.mu.Lock()
	defer l.mu.Unlock()
	var wants rawjson.Object
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(capabilities.Object(kind).Get("listChanged")) == "true" {
			wants = wants.Set(kind+"ListChanged", json.RawMessage("true"))
		}
	}
	if len(l.follows.resources) > 0 {
		uris, _ := json.Marshal(l.follows.resources) // strings always marshal
		wants = wants.Set("resourceSubscriptions", uris)
	}
	if len(wants) == 0 {
		return
	}
	ctx, end := context.WithCancel(l.e.ctx)
	ended := make(chan struct{})
	l.follows.end, l.follows.ended = end, ended
	go func() { // unfollow waits for it
		defer close(ended)
		_, _ = c.Call(ctx, mcp.Call{ // a server that does not want to tell of changes tells of none
			Method: mcp.MethodListen, Params: rawjson.Object{{Key: "notifications", Value: wants.JSON()}}.JSON(),
			Notified: func(method string, params json.RawMessage) {
				if method != mcp.NoteAcknowledged {
					l.notified(method, withoutMeta(params, mcp.MetaSubscriptionID))
				}
			},
		})
	}()
}

// unfollow ends the subscription and waits for its end.
func (l *link) unfollow() {
	l.mu.Lock()
	end, ended := l.follows.end, l.follows.ended
	l.follows.end, l.follows.ended = nil, nil
	l.mu.Unlock()
	if end != nil {
		end()
		<-ended
	}
}

// subscribe is a legacy client's wish to be told of a resource, or to be told no more.
func (l *link) subscribe(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if l.client().Era() == mcp.Legacy || r.Era == mcp.Modern {
		return l.forward(ctx, r)
	}
	params, err := rawjson.ParseObject(r.Params)
	uri := params.Text("uri")
	if err != nil || uri == "" {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a uri")
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.mu.Lock()
	l.follows.resources = slices.DeleteFunc(l.follows.resources, func(other string) bool { return other == uri })
	if r.Method == mcp.MethodSubscribe {
		l.follows.resources = append(l.follows.resources, uri)
	}
	l.mu.Unlock()
	l.follow()
	return json.RawMessage("{}"), nil
}
