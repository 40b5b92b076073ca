package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// tool is one tool.
type tool struct {
	name, description string
	// scope is the scope that a caller needs to see and to call it.
	scope access.Scope
	// schema is the JSON Schema of its arguments; annotations say what it does.
	schema, annotations string
	// call returns the result of an ordinary call: any JSON object, or inputRequired.
	call func(ctx context.Context, q *request, arguments json.RawMessage) (any, error)
	// start starts the work of a call as a task, and returns the id of the task; nil if the tool
	// cannot be called as one.
	start func(ctx context.Context, q *request, arguments json.RawMessage) (taskID string, err error)
}

const (
	reads   = `{"readOnlyHint":true,"openWorldHint":false}`
	changes = `{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":true}`
	ends    = `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}`
)

// shown is a tool in the form for clients of an era. Only Legacy marks tools that can be tasks.
func (t tool) shown(era mcp.Era) json.RawMessage {
	o := jsonobj.Object{
		{Key: "name", Value: jsonobj.Quote(t.name)}, {Key: "description", Value: jsonobj.Quote(t.description)},
		{Key: "inputSchema", Value: json.RawMessage(t.schema)}, {Key: "annotations", Value: json.RawMessage(t.annotations)},
	}
	if era == mcp.Legacy {
		support := `{"taskSupport":"forbidden"}`
		if t.start != nil {
			support = `{"taskSupport":"optional"}`
		}
		o = o.Set("execution", json.RawMessage(support))
	}
	return o.JSON()
}

// toolbox are the tools of a server.
type toolbox struct {
	tools []tool
	tasks *tasks
	log   *slog.Logger
}

// list lists the tools that the caller may use.
func (b *toolbox) list(q *request) (json.RawMessage, error) {
	var shown []json.RawMessage
	for _, t := range b.tools {
		if q.caller.May(t.scope) {
			shown = append(shown, t.shown(q.Era))
		}
	}
	tools, err := json.Marshal(append([]json.RawMessage{}, shown...))
	if err != nil {
		return nil, err
	}
	o := jsonobj.Object{{Key: "tools", Value: tools}}
	if q.Era == mcp.Modern {
		return complete(o.Set("ttlMs", json.RawMessage("0")).Set("cacheScope", json.RawMessage(`"private"`))), nil
	}
	return o.JSON(), nil
}

// call serves tools/call.
func (b *toolbox) call(ctx context.Context, q *request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	t, err := b.find(q, params.Text("name"))
	if err != nil {
		return nil, err
	}
	arguments := params.Get("arguments")
	if jsonobj.IsNull(arguments) {
		arguments = mcp.EmptyObject
	}
	asTask, err := q.wantsTask(params)
	switch {
	case err != nil:
		return nil, err
	case asTask && t.start != nil:
		id, err := t.start(ctx, q, arguments)
		if err != nil {
			return b.failed(q, t, err)
		}
		return b.tasks.created(ctx, q, id)
	case asTask && q.Era == mcp.Legacy:
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Tool %s cannot be called as a task (taskSupport: forbidden)", t.name)
	}
	document, err := t.call(ctx, q, arguments)
	if err != nil {
		return b.failed(q, t, err)
	}
	if asked, is := document.(inputRequired); is {
		return json.RawMessage(asked), nil
	}
	return q.result(document)
}

func (b *toolbox) find(q *request, name string) (tool, error) {
	for _, t := range b.tools {
		switch {
		case t.name != name:
		case !q.caller.May(t.scope):
			return t, mcp.Errorf(mcp.CodeInvalidParams, "the tool %s needs the scope %s, which the token lacks", name, t.scope)
		default:
			return t, nil
		}
	}
	return tool{}, mcp.Errorf(mcp.CodeInvalidParams, "Unknown tool: %.100s", name)
}

// failed is the answer to a failed call: a result that the model can read if it can do something
// about it, else an error.
func (b *toolbox) failed(q *request, t tool, err error) (json.RawMessage, error) {
	var said *mcp.Error
	var wrong *argumentError
	var input *runner.InputError
	switch {
	case errors.As(err, &said):
		return nil, said
	case errors.As(err, &wrong), errors.As(err, &input), errors.Is(err, service.ErrConflict),
		errors.Is(err, store.ErrNotFound):
		return q.refusal(err.Error()), nil
	case ctxEnded(err):
		return nil, err
	}
	return nil, internal(b.log, "the tool "+t.name, err)
}

func ctxEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, mcp.ErrCancelled) || errors.Is(err, mcp.ErrShutdown)
}

// argumentError explains what is wrong with the arguments of a call. The model reads it, and can
// try again.
type argumentError struct{ text string }

func (e *argumentError) Error() string { return e.text }

// read reads arguments, every one of which must be known.
func read(arguments json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return &argumentError{wrong.Field + ": this cannot be a JSON " + wrong.Value +
			"; the tool's input schema says what is expected"}
	case err != nil:
		return &argumentError{"arguments: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}
