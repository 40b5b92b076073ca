package tasks

import (
	"context"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// taskListener is a modern client's subscriptions/listen that names tasks.
type taskListener struct {
	r   *mcp.Request
	ids []string

	mu sync.Mutex
	// open says that the subscription is acknowledged, which comes first. ended are the tasks whose
	// end was told, which happens once.
	open  bool
	ended map[string]bool
}

func (n *taskListener) tell(rec store.MCPTask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.open || n.ended[rec.ID] {
		return
	}
	n.ended[rec.ID] = rec.Ended()
	// A failure means that the client has gone, which ends the request.
	_ = n.r.Notify(mcp.NoteTask, view(rec).Modern().Set("_meta", gateway.SubscriptionMeta(n.r)).JSON())
}

// subscriptions are the subscriptions/listen of modern clients that are open.
type subscriptions struct {
	mu        sync.Mutex
	listeners map[*mcp.Request]*taskListener // those that name tasks
	muted     map[*mcp.Request]bool          // those that are acknowledged
}

func newSubscriptions() *subscriptions {
	return &subscriptions{listeners: map[*mcp.Request]*taskListener{}, muted: map[*mcp.Request]bool{}}
}

// add enters a listener until its request ends, and ctx with it.
func (s *subscriptions) add(ctx context.Context, n *taskListener) {
	s.mu.Lock()
	s.listeners[n.r] = n
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, n.r)
	})
}

// mute records that a subscription is acknowledged, until its request ends, and ctx with it.
func (s *subscriptions) mute(ctx context.Context, r *mcp.Request) {
	s.mu.Lock()
	s.muted[r] = true
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.muted, r)
	})
}

// of returns the listener of a request, nil if it names no tasks, and whether it is acknowledged.
func (s *subscriptions) of(r *mcp.Request) (n *taskListener, muted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[r], s.muted[r]
}

// tell tells modern clients the state of a task.
func (s *subscriptions) tell(rec store.MCPTask) {
	if rec.Session != "" {
		return
	}
	var listeners []*taskListener
	s.mu.Lock()
	for _, n := range s.listeners {
		if slices.Contains(n.ids, rec.ID) {
			listeners = append(listeners, n)
		}
	}
	s.mu.Unlock()
	for _, n := range listeners {
		n.tell(rec)
	}
}
