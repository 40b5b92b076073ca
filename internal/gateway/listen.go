package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

const (
	noteToolsChanged     = "notifications/tools/list_changed"
	notePromptsChanged   = "notifications/prompts/list_changed"
	noteResourcesChanged = "notifications/resources/list_changed"
	noteResourceUpdated  = "notifications/resources/updated"
)

// ListChanges maps each notification that a list has changed to the name that a modern client asks
// for it by.
var ListChanges = map[string]string{
	noteToolsChanged: "toolsListChanged", notePromptsChanged: "promptsListChanged",
	noteResourcesChanged: "resourcesListChanged",
}

// Listen serves a modern client's subscriptions/listen for as long as it lasts. begun is called
// when the server, or the gateway in its place, has acknowledged it. The error is that of the call
// at a modern server.
func (l *Upstream) Listen(ctx context.Context, r *mcp.Request, begun func()) (json.RawMessage, error) {
	c := l.Client()
	if c.Era() == mcp.Legacy {
		return l.listenLegacy(ctx, c, r, begun)
	}
	// The server tags what it sends with our request's id, but the client knows only its own.
	call := mcp.Call{Method: r.Method, Params: mcp.WithoutMeta(r.Params, HopKeys...),
		Capabilities: r.Meta().Object(mcp.MetaClientCapabilities).JSON(), Info: l.info}
	call.Notified = func(method string, params json.RawMessage) {
		if method == noteToolsChanged {
			l.e.tools.Forget()
		}
		params = mcp.WithMeta(params, mcp.MetaSubscriptionID, r.ID)
		if method != mcp.NoteAcknowledged {
			_ = r.Notify(method, params) // a client that has gone ends ctx
			return
		}
		_ = l.e.tasks.Acknowledge(r, params) // as above
		begun()
	}
	return c.Call(ctx, call)
}

// listenLegacy serves subscriptions/listen at a legacy server.
func (l *Upstream) listenLegacy(ctx context.Context, c *mcp.Client,
	r *mcp.Request, begun func()) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	n := &listener{request: r, wants: params.Object("notifications")}
	if uris := n.wants.Get("resourceSubscriptions"); uris != nil && json.Unmarshal(uris, &n.resources) != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: notifications.resourceSubscriptions: expected a list of URIs")
	}
	granted := grant(c, slices.Clone(n.wants))
	if !granted.Has("resourceSubscriptions") {
		n.resources = nil
	}
	l.listeners.add(n) // now, so that no change after the subscription is missed
	for _, uri := range n.resources {
		if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}); err != nil {
			granted = granted.Delete("resourceSubscriptions")
			break
		}
	}
	err = n.acknowledge(l.e.tasks, granted)
	if err == nil {
		begun()
		<-ctx.Done()
	}
	for _, uri := range l.listeners.remove(n) {
		// If this fails, the server goes on telling and nobody is listening.
		_, _ = c.Call(l.e.ctx, mcp.Call{Method: mcp.MethodUnsubscribe, Params: uriParams(uri)})
	}
	return mcp.Acknowledged, err
}

func uriParams(uri string) json.RawMessage {
	return jsonobj.Object{{Key: "uri", Value: jsonobj.Quote(uri)}}.JSON()
}

// grant reduces the wishes of a modern client to what a legacy server can tell.
func grant(c *mcp.Client, wants jsonobj.Object) jsonobj.Object {
	capabilities := ServerCapabilities(c)
	return slices.DeleteFunc(wants, func(m jsonobj.Member) bool {
		kind, isList := strings.CutSuffix(m.Key, "ListChanged")
		switch {
		case isList:
			return string(capabilities.Object(kind).Get("listChanged")) != "true"
		case m.Key == "resourceSubscriptions":
			return string(capabilities.Object("resources").Get("subscribe")) != "true"
		}
		return true
	})
}

// notifiedOutside handles notifications that a server sends outside of calls.
func (l *Upstream) notifiedOutside(method string, params json.RawMessage) {
	if params, ok := l.e.tasks.Notification(l, method, params); ok {
		l.notified(method, params)
	}
}

// notified passes on notifications that a server sends outside of calls.
func (l *Upstream) notified(method string, params json.RawMessage) {
	if method == noteToolsChanged {
		l.e.tools.Forget()
	}
	switch {
	case method == mcp.NoteMessage:
		l.inFlight.log(params)
	case l.session != nil:
		_ = l.session.Notify(method, params) // a session that has ended does not want it
	default:
		l.listeners.tell(method, params)
	}
}

// askedOutside answers questions that a legacy server asks outside of calls.
func (l *Upstream) askedOutside(ctx context.Context, method string,
	params json.RawMessage) (json.RawMessage, *mcp.Error) {
	ask, params := l.e.tasks.Question(l, params)
	if ask != nil {
		return ask(ctx, method, params)
	}
	return l.inFlight.ask(ctx, method, params)
}

// subscribe answers resources/subscribe and resources/unsubscribe of a legacy client.
func (l *Upstream) subscribe(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	uri, c := params.Text("uri"), l.Client()
	if c.Era() == mcp.Legacy {
		result, failed := l.forward(ctx, r)
		if failed == nil {
			l.follower.note(uri, r.Method == mcp.MethodSubscribe)
		}
		return result, failed
	}
	if err != nil || uri == "" {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a uri")
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.follower.note(uri, r.Method == mcp.MethodSubscribe)
	l.follower.follow(ctx, l.Client())
	return json.RawMessage("{}"), nil
}

// Listened is the answer to a subscription that was open until its context ended. It is complete if
// we are closed. A client that could not be sent everything that it had subscribed to gets an
// error.
func Listened(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, mcp.ErrShutdown) {
		return nil, err
	}
	return jsonobj.Object{
		{Key: "resultType", Value: json.RawMessage(`"complete"`)}, {Key: "_meta", Value: SubscriptionMeta(r)},
	}.JSON(), nil
}

// SubscriptionMeta is the _meta of messages that belong to a subscription.
func SubscriptionMeta(r *mcp.Request) json.RawMessage {
	return jsonobj.Object{{Key: mcp.MetaSubscriptionID, Value: r.ID}}.JSON()
}
