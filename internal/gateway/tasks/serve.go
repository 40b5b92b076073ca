package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Serve answers what clients ask about tasks. It needs no connection to a server. ok is false for
// all else.
func (k *Manager) Serve(ctx context.Context, r *mcp.Request) (result json.RawMessage, ok bool, err error) {
	var f func(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error)
	q := requests{k}
	switch r.Method {
	case mcp.MethodTasksGet:
		f = q.get
	case mcp.MethodTasksCancel:
		f = q.cancel
	case mcp.MethodTasksList:
		f = q.list
	case mcp.MethodTasksResult:
		f = q.result
	case mcp.MethodTasksUpdate:
		f = q.update
	case mcp.MethodListen:
		return k.listen(ctx, r)
	default:
		return nil, false, nil
	}
	modern := r.Method == mcp.MethodTasksUpdate
	if legacy := r.Method == mcp.MethodTasksList || r.Method == mcp.MethodTasksResult; legacy && r.Era == mcp.Modern || modern && r.Era == mcp.Legacy {
		return nil, true, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
	}
	if r.Era == mcp.Modern && !hasTasks(r.Meta().Object(mcp.MetaClientCapabilities)) {
		return nil, true, missingTasks()
	}
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	if _, isText := jsonobj.Unquote(params.Get("taskId")); !isText && r.Method != mcp.MethodTasksList {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: expected a string")
	}
	result, err = f(ctx, r, params)
	var said *mcp.Error
	if err != nil && !errors.As(err, &said) {
		err = mcp.Errorf(mcp.CodeInternal, "%v", err)
	}
	return result, true, err
}

// sessionOf is the session that the tasks of a request's client belong to.
func sessionOf(r *mcp.Request) string {
	if r.Era == mcp.Modern {
		return ""
	}
	return r.Session.ID()
}

// requests answers the requests of clients that name tasks, or list them.
type requests struct{ k *Manager }

// get answers tasks/get.
func (q requests) get(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error) {
	_, rec, err := q.k.find(ctx, sessionOf(r), params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	if r.Era == mcp.Legacy {
		return legacyTask(rec), nil
	}
	return append(jsonobj.Object{{Key: "resultType", Value: json.RawMessage(`"complete"`)}}, modernTask(rec)...).JSON(), nil
}

// cancel cancels a task. In Legacy the answer is the task, and one that has ended is an error.
func (q requests) cancel(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error) {
	t, rec, err := q.k.find(ctx, sessionOf(r), params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	if t != nil {
		t.stop("cancelled by its client")
		rec, _ = t.record()
	}
	switch {
	case r.Era == mcp.Modern:
		return gateway.Acknowledged, nil
	case t == nil, rec.Status != mcptask.Cancelled:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "Cannot cancel task: it is %s", rec.Status)
	}
	return legacyTask(rec), nil
}

// cursor stands for the tasks of a session after one of them. It bears a checksum, so that it is
// known whether we have given it.
func (q requests) cursor(session string, seq int64) string {
	number := strconv.FormatInt(seq, 36)
	sum := sha256.Sum256([]byte(q.k.access + " " + session + " " + number))
	return number + "-" + hex.EncodeToString(sum[:4])
}

// list gives a page of the tasks of a session.
func (q requests) list(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error) {
	var after int64
	session := sessionOf(r)
	if cursor := params.Get("cursor"); !jsonobj.IsNull(cursor) {
		number, _, _ := strings.Cut(params.Text("cursor"), "-")
		n, err := strconv.ParseInt(number, 36, 64)
		if err != nil || params.Text("cursor") != q.cursor(session, n) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "Invalid cursor")
		}
		after = n
	}
	all, err := q.k.o.Store.MCPTasks(ctx, q.k.access, session, after, q.k.o.Page+1)
	if err != nil {
		return nil, err
	}
	more := len(all) > q.k.o.Page
	all = all[:min(len(all), q.k.o.Page)]
	views := make([]json.RawMessage, len(all))
	for i, rec := range all {
		views[i] = legacyTask(rec)
	}
	tasks, err := json.Marshal(views)
	if err != nil {
		return nil, err
	}
	page := jsonobj.Object{{Key: "tasks", Value: tasks}}
	if more {
		page = page.Set("nextCursor", jsonobj.Quote(q.cursor(session, all[len(all)-1].Seq)))
	}
	return page.JSON(), nil
}

// result waits for the end of a task, and meanwhile asks the client what the task wants to know.
func (q requests) result(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error) {
	t, rec, err := q.k.find(ctx, sessionOf(r), params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	for t != nil {
		var changed <-chan struct{}
		if rec, changed = t.record(); rec.Ended() {
			break
		}
		if q := t.claim(); q != nil {
			if err := t.askIn(ctx, r, q); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.s.e.Context().Done():
			return nil, mcp.Errorf(mcp.CodeInternal, "the gateway is being closed; ask again")
		}
	}
	return payloadOf(rec, mcp.Legacy, true)
}

// update hands in what a modern client answers.
func (q requests) update(ctx context.Context, r *mcp.Request, params jsonobj.Object) (json.RawMessage, error) {
	t, _, err := q.k.find(ctx, sessionOf(r), params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	responses, err := jsonobj.ParseObject(params.Get("inputResponses"))
	if err != nil || jsonobj.IsNull(params.Get("inputResponses")) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: expected an object")
	}
	if t != nil { // else it has ended, and answers do not matter
		if err := t.respond(ctx, responses); err != nil {
			return nil, err
		}
	}
	return gateway.Acknowledged, nil
}
