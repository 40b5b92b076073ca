package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

const (
	NoteToolsChanged     = "notifications/tools/list_changed"
	notePromptsChanged   = "notifications/prompts/list_changed"
	noteResourcesChanged = "notifications/resources/list_changed"
	noteResourceUpdated  = "notifications/resources/updated"
)

// Changes are the notifications that a modern client asks for by name.
var Changes = map[string]string{NoteToolsChanged: "toolsListChanged", notePromptsChanged: "promptsListChanged", noteResourcesChanged: "resourcesListChanged"}

// listener is a modern client's subscriptions/listen at a legacy server.
type listener struct {
	request   *mcp.Request
	wants     jsonobj.Object
	resources []string

	mu sync.Mutex
	// early is what came before the client was told that it will be told.
	early []func()
	told  bool
}

// tell sends a notification, not before the acknowledgement.
func (n *listener) tell(method string, params json.RawMessage) {
	send := func() {
		_ = n.request.Notify(method, mcp.WithMeta(params, mcp.MetaSubscriptionID, n.request.ID)) // a client that has gone ends the request
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told {
		send()
	} else {
		n.early = append(n.early, send)
	}
}

// acknowledge tells the client what it will be told.
func (n *listener) acknowledge(l *Upstream, granted jsonobj.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := l.tell(n.request, mcp.NoteAcknowledged, jsonobj.Object{
		{Key: "notifications", Value: granted.JSON()}, {Key: "_meta", Value: jsonobj.Object{{Key: mcp.MetaSubscriptionID, Value: n.request.ID}}.JSON()},
	}.JSON())
	n.told = true
	for _, send := range n.early {
		send()
	}
	n.early = nil
	return err
}

// Listen serves a modern client's wish to be told of changes for as long as it lasts; begun is called when the server, or what we know of it, has
// acknowledged it. The error is that of the call at a modern server.
func (l *Upstream) Listen(ctx context.Context, r *mcp.Request, begun func()) (json.RawMessage, error) {
	c := l.Client()
	if c.Era() == mcp.Modern {
		// The server tags what it sends with our request's id; the client knows only its own.
		call := mcp.Call{Method: r.Method, Params: mcp.WithoutMeta(r.Params, HopKeys...), Capabilities: r.Meta().Object(mcp.MetaClientCapabilities).JSON(), Info: l.info}
		call.Notified = func(method string, params json.RawMessage) {
			if method == NoteToolsChanged {
				l.e.ForgetTools()
			}
			_ = l.tell(r, method, mcp.WithMeta(params, mcp.MetaSubscriptionID, r.ID)) // a client that has gone ends ctx
			if method == mcp.NoteAcknowledged {
				begun()
			}
		}
		return c.Call(ctx, call)
	}
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
	l.mu.Lock()
	l.listeners = append(l.listeners, n) // now: what changes after a subscription must not be missed
	l.mu.Unlock()
	for _, uri := range n.resources {
		if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}); err != nil {
			granted = granted.Delete("resourceSubscriptions")
			break
		}
	}
	err = n.acknowledge(l, granted)
	if err == nil {
		begun()
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
	return Acknowledged, err
}

func uriParams(uri string) json.RawMessage {
	return jsonobj.Object{{Key: "uri", Value: jsonobj.Quote(uri)}}.JSON()
}

// grant leaves of what a modern client wants to be told what a legacy server can tell.
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

// notified passes on what a legacy server says outside of calls.
func (l *Upstream) notified(method string, params json.RawMessage) {
	if method == NoteToolsChanged {
		l.e.ForgetTools()
	}
	if method == mcp.NoteMessage {
		l.logApart(params)
		return
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
			n.tell(method, params)
		}
	}
}

// hears reports whether a listener has asked for a notification.
func (n *listener) hears(method string, params json.RawMessage) bool {
	if method == noteResourceUpdated {
		o, _ := jsonobj.ParseObject(params)
		return slices.Contains(n.resources, o.Text("uri"))
	}
	return string(n.wants.Get(Changes[method])) == "true"
}

// follows is how a legacy session is told of the changes of a modern server: by a subscription of our own.
type follows struct {
	resources []string
	end       context.CancelFunc
	ended     chan struct{}
}

const (
	// ackTimeout is how long a server may take to say that it will tell of changes.
	ackTimeout = 5 * time.Second
	// A subscription that was cut is begun anew after the first delay, which is doubled up to the last.
	FollowFirst, FollowLast = time.Second, 30 * time.Second
)

// follow begins to listen at a modern server for a legacy session, or to listen to something else. When it returns the server has said that it
// will tell, or does not want to. The caller holds connecting.
func (l *Upstream) follow(ctx context.Context) {
	c := l.Client()
	if l.session == nil || c.Era() != mcp.Modern {
		return
	}
	wants := l.wants(c)
	life, end := context.WithCancel(l.e.ctx)
	ended, acknowledged := make(chan struct{}), make(chan struct{})
	go func() { // unfollow waits for it
		defer close(ended)
		if len(wants) > 0 {
			l.listenTo(life, c, wants, sync.OnceFunc(func() { close(acknowledged) }))
		}
	}()
	late := time.NewTimer(ackTimeout)
	defer late.Stop()
	select {
	case <-acknowledged:
	case <-ended:
	case <-late.C:
	case <-ctx.Done():
	}
	l.unfollow() // only now, so that nothing is missed
	l.mu.Lock()
	l.follows.end, l.follows.ended = end, ended
	l.mu.Unlock()
}

// wants is what a legacy client would be told of without being asked, and what it has asked for.
func (l *Upstream) wants(c *mcp.Client) (wants jsonobj.Object) {
	capabilities := ServerCapabilities(c)
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(capabilities.Object(kind).Get("listChanged")) == "true" {
			wants = wants.Set(kind+"ListChanged", json.RawMessage("true"))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.follows.resources) > 0 {
		uris, _ := json.Marshal(l.follows.resources) // strings always marshal
		wants = wants.Set("resourceSubscriptions", uris)
	}
	return wants
}

// listenTo listens until the context ends or the server does not want to tell.
func (l *Upstream) listenTo(ctx context.Context, c *mcp.Client, wants jsonobj.Object, acknowledged func()) {
	call := mcp.Call{Method: mcp.MethodListen, Params: jsonobj.Object{{Key: "notifications", Value: wants.JSON()}}.JSON()}
	for delay := FollowFirst; ; delay = min(2*delay, FollowLast) {
		call.Notified = func(method string, params json.RawMessage) {
			if method == mcp.NoteAcknowledged {
				acknowledged()
				delay = FollowFirst
				return
			}
			l.notified(method, mcp.WithoutMeta(params, mcp.MetaSubscriptionID))
		}
		_, err := c.Call(ctx, call)
		acknowledged() // nobody need wait any longer
		var said *mcp.Error
		if errors.As(err, &said) {
			return
		}
		pause := time.NewTimer(delay)
		select {
		case <-pause.C:
		case <-c.Done():
			pause.Stop()
			return // who connects anew follows anew
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// unfollow ends the subscription and waits for its end.
func (l *Upstream) unfollow() {
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
func (l *Upstream) subscribe(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	uri := params.Text("uri")
	if l.Client().Era() == mcp.Legacy {
		result, failed := l.forward(ctx, r)
		if failed == nil {
			l.note(uri, r.Method == mcp.MethodSubscribe)
		}
		return result, failed
	}
	if err != nil || uri == "" {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a uri")
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.note(uri, r.Method == mcp.MethodSubscribe)
	l.follow(ctx)
	return json.RawMessage("{}"), nil
}

// note notes whether a legacy client wants to be told of a resource.
func (l *Upstream) note(uri string, wants bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follows.resources = slices.DeleteFunc(l.follows.resources, func(other string) bool { return other == uri })
	if wants {
		l.follows.resources = append(l.follows.resources, uri)
	}
}

// restore tells a legacy server to which we have a new connection what its clients had told it on the old one.
func (l *Upstream) restore(ctx context.Context, c *mcp.Client) {
	if c.Era() != mcp.Legacy {
		return
	}
	l.mu.Lock()
	level, uris := l.level, slices.Clone(l.follows.resources)
	for _, n := range l.listeners {
		uris = append(uris, n.resources...)
	}
	l.mu.Unlock()
	if level != "" {
		_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)}) // it is another server now if it fails
	}
	slices.Sort(uris)
	for _, uri := range slices.Compact(uris) {
		_, _ = c.Call(ctx, mcp.Call{Method: mcp.MethodSubscribe, Params: uriParams(uri)}) // as above
	}
}

// Listened is the answer to a subscription that was open until its context ended. It is complete if we are closed; a client that could not be sent
// all that it had subscribed to must not take it for that.
func Listened(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, mcp.ErrShutdown) {
		return nil, err
	}
	return jsonobj.Object{{Key: "resultType", Value: json.RawMessage(`"complete"`)}, {Key: "_meta", Value: SubscriptionMeta(r)}}.JSON(), nil
}

func SubscriptionMeta(r *mcp.Request) json.RawMessage {
	return jsonobj.Object{{Key: mcp.MetaSubscriptionID, Value: r.ID}}.JSON()
}

// tell sends a client what belongs to its subscription.
func (l *Upstream) tell(r *mcp.Request, method string, params json.RawMessage) error {
	if method == mcp.NoteAcknowledged {
		return l.e.tasks.Acknowledge(r, params)
	}
	return r.Notify(method, params)
}

// Acknowledged is the answer to what needs no other.
var Acknowledged = json.RawMessage(`{"resultType":"complete"}`)
