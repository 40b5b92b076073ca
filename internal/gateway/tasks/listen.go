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
	"github.com/evalrun/evalrun/internal/store"
)

// taskListener is a modern client's subscriptions/listen that names tasks.
type taskListener struct {
	r   *mcp.Request
	ids []string

	mu sync.Mutex
	// open says that the subscription is acknowledged, which comes first; ended are the tasks whose end was told, which is once.
	open  bool
	ended map[string]bool
}

// listen takes the tasks out of a subscription. What else is in it goes the usual way; the subscription is served here if there is nothing.
func (k *Manager) listen(ctx context.Context, r *mcp.Request) (result json.RawMessage, served bool, err error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	wants := params.Object("notifications")
	if !wants.Has("taskIds") || r.Era != mcp.Modern {
		return nil, false, nil
	}
	if !hasTasks(r.Meta().Object(mcp.MetaClientCapabilities)) {
		return nil, true, missingTasks()
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
	k.mu.Lock()
	k.listeners[r] = n
	k.mu.Unlock()
	context.AfterFunc(ctx, func() { // a request's context ends with it
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.listeners, r)
	})
	wants = slices.Clone(wants).Delete("taskIds")
	r.Params = params.Set("notifications", wants.JSON()).JSON()
	if len(wants) > 0 {
		return nil, false, nil
	}
	if err := k.Acknowledge(r, jsonobj.Object{{Key: "notifications", Value: mcp.EmptyObject}, {Key: "_meta", Value: gateway.SubscriptionMeta(r)}}.JSON()); err == nil {
		<-ctx.Done()
	}
	result, err = gateway.Listened(ctx, r)
	return result, true, err
}

// Mute says that a subscription is acknowledged, whatever its servers say.
func (k *Manager) Mute(ctx context.Context, r *mcp.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.muted[r] = true
	context.AfterFunc(ctx, func() { // a request's context ends with it
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.muted, r)
	})
}

// Linger keeps a subscription open for the tasks in it when the server has nothing more to tell.
func (k *Manager) Linger(ctx context.Context, r *mcp.Request) {
	k.mu.Lock()
	n := k.listeners[r]
	k.mu.Unlock()
	if n != nil {
		<-ctx.Done()
	}
}

// Acknowledge tells a client which subscriptions it has, those for tasks included, and how its tasks are that have changed before.
func (k *Manager) Acknowledge(r *mcp.Request, params json.RawMessage) error {
	k.mu.Lock()
	n, muted := k.listeners[r], k.muted[r]
	k.mu.Unlock()
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

// tellListeners tells modern clients how a task is.
func (k *Manager) tellListeners(rec store.MCPTask) {
	if rec.Session != "" {
		return
	}
	var listeners []*taskListener
	k.mu.Lock()
	for _, n := range k.listeners {
		if slices.Contains(n.ids, rec.ID) {
			listeners = append(listeners, n)
		}
	}
	k.mu.Unlock()
	for _, n := range listeners {
		n.tell(rec)
	}
}

func (n *taskListener) tell(rec store.MCPTask) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.open || n.ended[rec.ID] {
		return
	}
	n.ended[rec.ID] = rec.Ended()
	_ = n.r.Notify(mcp.NoteTask, modernTask(rec).Set("_meta", gateway.SubscriptionMeta(n.r)).JSON()) // a client that has gone ends the request
}
