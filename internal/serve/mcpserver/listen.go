package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
)

// subscription is a request subscriptions/listen: a modern client gets notifications about the
// tasks that it names, and about nothing else.
type subscription struct {
	tasks *tasks
	q     *request
	// ids are the tasks; nil if the client does not name any.
	ids []string
	// meta is part of every message.
	meta jsonobj.Object
}

// newSubscription reads the request. It leaves out tasks of other callers.
func newSubscription(ctx context.Context, tasks *tasks, q *request) (*subscription, error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	one := &subscription{tasks: tasks, q: q, meta: jsonobj.Object{{Key: mcp.MetaSubscriptionID, Value: q.ID}}}
	wants := params.Object("notifications")
	if !wants.Has("taskIds") {
		return one, nil
	}
	if !taskwire.Declares(q.capabilities()) {
		return nil, taskwire.Undeclared()
	}
	var named []string
	if json.Unmarshal(wants.Get("taskIds"), &named) != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: notifications.taskIds: expected a list of strings")
	}
	one.ids = []string{}
	for _, id := range named {
		if _, err := tasks.job(ctx, q, id); err == nil && !slices.Contains(one.ids, id) && len(one.ids) < maxTold {
			one.ids = append(one.ids, id)
		}
	}
	return one, nil
}

// serve sends notifications until the client goes or the server is closed.
func (one *subscription) serve(ctx context.Context) (json.RawMessage, error) {
	subscribed := jsonobj.Object{}
	if one.ids != nil {
		list, err := json.Marshal(one.ids)
		if err != nil {
			return nil, err
		}
		subscribed = subscribed.Set("taskIds", list)
	}
	acknowledged := jsonobj.Object{{Key: "notifications", Value: subscribed.JSON()},
		{Key: "_meta", Value: one.meta.JSON()}}
	if one.q.Notify(mcp.NoteAcknowledged, acknowledged.JSON()) == nil {
		var telling sync.WaitGroup
		for _, id := range one.ids {
			telling.Go(func() { one.tell(ctx, id) })
		}
		<-ctx.Done()
		telling.Wait()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, mcp.ErrShutdown) {
		return nil, cause
	}
	return complete(nil, one.meta...), nil
}

// tell reports the state of a task, unless it just works as every task does at first, and then all
// its changes.
func (one *subscription) tell(ctx context.Context, id string) {
	told := ""
	one.tasks.follow(ctx, one.q, id, func(t taskwire.Task) {
		first, now := told == "", t.Status+" "+t.Message
		if now == told {
			return
		}
		if told = now; !first || t.Status != string(store.JobWorking) {
			_ = one.q.Notify(mcp.NoteTask, t.Modern().Set("_meta", one.meta.JSON()).JSON()) // a client that has gone ends ctx
		}
	})
}
