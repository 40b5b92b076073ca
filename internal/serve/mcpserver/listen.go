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

// follow calls f with a task now and whenever the run has changed, until it has ended or ctx is
// done. It reports whether the task has ended, or is not there.
func (s *Server) follow(ctx context.Context, q *request, id string, f func(taskwire.Task)) (ended bool) {
	for {
		changed := s.st.Changed(id)
		t, err := s.task(ctx, q, id)
		var said *mcp.Error
		switch {
		case errors.As(err, &said) && said.Code == mcp.CodeInvalidParams:
			return true
		case err == nil:
			if f(t); store.JobStatus(t.Status).IsTerminal() {
				return true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// listen serves subscriptions/listen: the client is told of the tasks that it names. Nothing else
// changes here.
func (s *Server) listen(ctx context.Context, q *request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	wants := params.Object("notifications")
	subscribed := jsonobj.Object{}
	var ids []string
	if wants.Has("taskIds") {
		if !taskwire.Declares(q.capabilities()) {
			return nil, taskwire.Undeclared()
		}
		var named []string
		if json.Unmarshal(wants.Get("taskIds"), &named) != nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: notifications.taskIds: expected a list of strings")
		}
		ids = []string{}
		for _, id := range named {
			if _, err := s.job(ctx, q, id); err == nil && !slices.Contains(ids, id) && len(ids) < maxTold {
				ids = append(ids, id)
			}
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		subscribed = subscribed.Set("taskIds", list)
	}
	meta := jsonobj.Object{{Key: mcp.MetaSubscriptionID, Value: q.ID}}
	if q.Notify(mcp.NoteAcknowledged, jsonobj.Object{{Key: "notifications", Value: subscribed.JSON()}, {Key: "_meta", Value: meta.JSON()}}.JSON()) == nil {
		var telling sync.WaitGroup
		for _, id := range ids {
			telling.Go(func() { s.tell(ctx, q, id, meta) })
		}
		<-ctx.Done()
		telling.Wait()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, mcp.ErrShutdown) {
		return nil, cause
	}
	return complete(nil, meta...), nil
}

// tell tells a modern client of a task as it is, unless it works as every task begins, and of all
// that changes.
func (s *Server) tell(ctx context.Context, q *request, id string, meta jsonobj.Object) {
	told := ""
	s.follow(ctx, q, id, func(t taskwire.Task) {
		first, now := told == "", t.Status+" "+t.Message
		if now == told {
			return
		}
		if told = now; !first || t.Status != string(store.JobWorking) {
			_ = q.Notify(mcp.NoteTask, t.Modern().Set("_meta", meta.JSON()).JSON()) // a client that has gone ends ctx
		}
	})
}
