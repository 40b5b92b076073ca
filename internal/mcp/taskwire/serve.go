package taskwire

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Backend has tasks. r is the request that names a task, so that its owner can be told. An error
// that is an [*mcp.Error] is answered as it is; [NotFound] is the one for a task that the client
// does not have.
type Backend interface {
	// Task returns a task.
	Task(ctx context.Context, r *mcp.Request, id string) (Task, error)
	// Tasks returns the page of the client's tasks at a cursor, which is nil for the first one, and
	// the cursor of the next page, which is empty if there is none.
	Tasks(ctx context.Context, r *mcp.Request, cursor *string) (page []Task, next string, err error)
	// Await waits for the end of a task, and meanwhile asks a legacy client the questions of the task.
	Await(ctx context.Context, r *mcp.Request, id string) (Task, error)
	// Answer hands in the answers of a modern client. Answers to questions that were not asked are
	// ignored.
	Answer(ctx context.Context, r *mcp.Request, id string, responses jsonobj.Object) error
	// Cancel cancels a task, and returns it as it is then. did is false if it had ended before.
	Cancel(ctx context.Context, r *mcp.Request, id string) (t Task, did bool, err error)
}

// NotFound is the error for a task that the client does not have.
func NotFound() error {
	return mcp.Errorf(mcp.CodeInvalidParams, "Failed to retrieve task: Task not found")
}

// LegacyOffer is the capability tasks of a server of 2025-11-25.
var LegacyOffer = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)

// Declares reports whether a modern client has said in its capabilities that it knows tasks.
func Declares(capabilities jsonobj.Object) bool {
	return capabilities.Object("extensions").Has(mcp.ExtensionTasks)
}

// Undeclared is the error for a modern client that has not declared that it knows tasks.
func Undeclared() error {
	return mcp.Errorf(mcp.CodeMissingCapability, "the client has not declared the extension %s", mcp.ExtensionTasks).
		WithData(json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + mcp.ExtensionTasks + `":{}}}}`))
}

// Serve answers the requests of clients about tasks. ok is false for all other requests.
func Serve(ctx context.Context, b Backend, r *mcp.Request) (result json.RawMessage, ok bool, err error) {
	s := server{b, r}
	answer, ok := map[string]func(context.Context, jsonobj.Object) (json.RawMessage, error){
		mcp.MethodTasksGet: s.get, mcp.MethodTasksCancel: s.cancel, mcp.MethodTasksList: s.list,
		mcp.MethodTasksResult: s.result, mcp.MethodTasksUpdate: s.update,
	}[r.Method]
	if !ok {
		return nil, false, nil
	}
	modern := r.Method == mcp.MethodTasksUpdate
	if legacy := r.Method == mcp.MethodTasksList || r.Method == mcp.MethodTasksResult; legacy && r.Era == mcp.Modern ||
		modern && r.Era == mcp.Legacy {
		return nil, true, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
	}
	if r.Era == mcp.Modern && !Declares(r.Meta().Object(mcp.MetaClientCapabilities)) {
		return nil, true, Undeclared()
	}
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	if _, isText := jsonobj.Unquote(params.Get("taskId")); !isText && r.Method != mcp.MethodTasksList {
		return nil, true, mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: expected a string")
	}
	result, err = answer(ctx, params)
	var said *mcp.Error
	if err != nil && !errors.As(err, &said) {
		err = mcp.Errorf(mcp.CodeInternal, "%v", err)
	}
	return result, true, err
}

// server answers one request.
type server struct {
	b Backend
	r *mcp.Request
}

func (s server) get(ctx context.Context, params jsonobj.Object) (json.RawMessage, error) {
	t, err := s.b.Task(ctx, s.r, params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	if s.r.Era == mcp.Legacy {
		return t.Legacy(), nil
	}
	return append(jsonobj.Object{{Key: "resultType", Value: json.RawMessage(`"complete"`)}}, t.Modern()...).JSON(), nil
}

// cancel cancels a task. In Legacy the answer is the task, and cancelling an ended one is an error.
func (s server) cancel(ctx context.Context, params jsonobj.Object) (json.RawMessage, error) {
	t, did, err := s.b.Cancel(ctx, s.r, params.Text("taskId"))
	switch {
	case err != nil:
		return nil, err
	case s.r.Era == mcp.Modern:
		return mcp.Acknowledged, nil
	case !did, t.Status != cancelled:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "Cannot cancel task: it is %s", t.Status)
	}
	return t.Legacy(), nil
}

func (s server) list(ctx context.Context, params jsonobj.Object) (json.RawMessage, error) {
	var cursor *string
	if given := params.Get("cursor"); !jsonobj.IsNull(given) {
		text := params.Text("cursor")
		cursor = &text
	}
	tasks, next, err := s.b.Tasks(ctx, s.r, cursor)
	if err != nil {
		return nil, err
	}
	views := make([]json.RawMessage, len(tasks))
	for i, t := range tasks {
		views[i] = t.Legacy()
	}
	list, err := json.Marshal(views)
	if err != nil {
		return nil, err
	}
	page := jsonobj.Object{{Key: "tasks", Value: list}}
	if next != "" {
		page = page.Set("nextCursor", jsonobj.Quote(next))
	}
	return page.JSON(), nil
}

func (s server) result(ctx context.Context, params jsonobj.Object) (json.RawMessage, error) {
	t, err := s.b.Await(ctx, s.r, params.Text("taskId"))
	if err != nil {
		return nil, err
	}
	return t.Payload(mcp.Legacy, true)
}

func (s server) update(ctx context.Context, params jsonobj.Object) (json.RawMessage, error) {
	id := params.Text("taskId")
	if _, err := s.b.Task(ctx, s.r, id); err != nil {
		return nil, err
	}
	responses, err := jsonobj.ParseObject(params.Get("inputResponses"))
	if err != nil || jsonobj.IsNull(params.Get("inputResponses")) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: expected an object")
	}
	if err := s.b.Answer(ctx, s.r, id, responses); err != nil {
		return nil, err
	}
	return mcp.Acknowledged, nil
}
