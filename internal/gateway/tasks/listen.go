package tasks

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
)

// listen handles the tasks of a subscription. The rest of the subscription goes the usual way; if
// there is none, the subscription is served here.
func (k *Manager) listen(ctx context.Context, r *mcp.Request) (result json.RawMessage, served bool, err error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	wants := params.Object("notifications")
	if !wants.Has("taskIds") || r.Era != mcp.Modern {
		return nil, false, nil
	}
	if !taskwire.Declares(r.Meta().Object(mcp.MetaClientCapabilities)) {
		return nil, true, taskwire.Undeclared()
	}
	var ids []string
	if json.Unmarshal(wants.Get("taskIds"), &ids) != nil {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params: notifications.taskIds: expected a list of strings")
	}
	n := &taskListener{r: r, ended: map[string]bool{}}
	for _, id := range ids {
		if _, _, err := k.find(ctx, "", id); err == nil && !slices.Contains(n.ids, id) {
			n.ids = append(n.ids, id)
		}
	}
	k.subscriptions.add(ctx, n)
	wants = slices.Clone(wants).Delete("taskIds")
	r.Params = params.Set("notifications", wants.JSON()).JSON()
	if len(wants) > 0 {
		return nil, false, nil
	}
	if err := k.Acknowledge(r, jsonobj.Object{
		{Key: "notifications", Value: mcp.EmptyObject}, {Key: "_meta", Value: gateway.SubscriptionMeta(r)},
	}.JSON()); err == nil {
		<-ctx.Done()
	}
	result, err = gateway.Listened(ctx, r)
	return result, true, err
}

// Mute says that a subscription is acknowledged, whatever its servers say.
func (k *Manager) Mute(ctx context.Context, r *mcp.Request) {
	k.subscriptions.mute(ctx, r)
}

// Linger keeps a subscription open for the tasks in it when the server has nothing more to tell.
func (k *Manager) Linger(ctx context.Context, r *mcp.Request) {
	if n, _ := k.subscriptions.of(r); n != nil {
		<-ctx.Done()
	}
}

// Acknowledge tells a client which subscriptions it has, those for tasks included, and the state of
// its tasks that have changed before.
func (k *Manager) Acknowledge(r *mcp.Request, params json.RawMessage) error {
	n, muted := k.subscriptions.of(r)
	if muted {
		return nil
	}
	if n == nil {
		return r.Notify(mcp.NoteAcknowledged, params)
	}
	if len(n.ids) > 0 {
		o, err := jsonobj.ParseObject(params)
		if err != nil {
			return err
		}
		ids, err := json.Marshal(n.ids)
		if err != nil {
			return err
		}
		params = o.Set("notifications", slices.Clone(o.Object("notifications")).Set("taskIds", ids).JSON()).JSON()
	}
	if err := r.Notify(mcp.NoteAcknowledged, params); err != nil {
		return err
	}
	n.mu.Lock()
	n.open = true
	n.mu.Unlock()
	for _, id := range n.ids {
		if _, rec, err := k.find(k.ctx, "", id); err == nil && rec.Status != mcptask.Working {
			n.tell(rec)
		}
	}
	return nil
}

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
