package gateway

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// listener is a modern client's subscriptions/listen at a legacy server.
type listener struct {
	request   *mcp.Request
	wants     jsonobj.Object
	resources []string

	mu sync.Mutex
	// early are the notifications that came before the client was sent the acknowledgement.
	early        []func()
	acknowledged bool
}

// tell sends a notification, but not before the acknowledgement.
func (n *listener) tell(method string, params json.RawMessage) {
	send := func() {
		// A failure means that the client has gone, which ends the request.
		_ = n.request.Notify(method, mcp.WithMeta(params, mcp.MetaSubscriptionID, n.request.ID))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.acknowledged {
		send()
	} else {
		n.early = append(n.early, send)
	}
}

// acknowledge tells the client what it has subscribed to.
func (n *listener) acknowledge(tasks Tasks, granted jsonobj.Object) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := tasks.Acknowledge(n.request, jsonobj.Object{
		{Key: "notifications", Value: granted.JSON()}, {Key: "_meta", Value: SubscriptionMeta(n.request)},
	}.JSON())
	n.acknowledged = true
	for _, send := range n.early {
		send()
	}
	n.early = nil
	return err
}

// hasAskedFor reports whether the client has asked for a notification.
func (n *listener) hasAskedFor(method string, params json.RawMessage) bool {
	if method == noteResourceUpdated {
		o, _ := jsonobj.ParseObject(params)
		return slices.Contains(n.resources, o.Text("uri"))
	}
	return string(n.wants.Get(ListChanges[method])) == "true"
}

// listeners are the subscriptions of modern clients at one legacy server.
type listeners struct {
	mu  sync.Mutex
	all []*listener
}

func (s *listeners) add(n *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, n)
}

// remove removes a listener. unused are its resources that no other listener has asked for.
func (s *listeners) remove(n *listener) (unused []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *listener) bool { return other == n })
	for _, uri := range n.resources {
		if !slices.ContainsFunc(s.all, func(other *listener) bool { return slices.Contains(other.resources, uri) }) {
			unused = append(unused, uri)
		}
	}
	return unused
}

// uris are the resources that the listeners have asked for.
func (s *listeners) uris() (uris []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		uris = append(uris, n.resources...)
	}
	return uris
}

// tell sends a notification to the clients that have asked for it.
func (s *listeners) tell(method string, params json.RawMessage) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, n := range all {
		if n.hasAskedFor(method, params) {
			n.tell(method, params)
		}
	}
}
