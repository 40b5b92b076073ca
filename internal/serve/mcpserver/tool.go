package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/serve/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// tool is one tool.
type tool struct {
	name, description string
	// scope is what a caller needs to see and to call it.
	scope access.Scope
	// schema is the JSON Schema of its arguments; annotations say what it does.
	schema, annotations string
	// task says that it can be called as a task.
	task bool
	// call returns the result of an ordinary call: any JSON object.
	call func(ctx context.Context, q *request, arguments json.RawMessage) (any, error)
}

const (
	reads   = `{"readOnlyHint":true,"openWorldHint":false}`
	changes = `{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":true}`
	ends    = `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}`
)

func (s *Server) allTools() []tool {
	return []tool{
		{name: "run_eval_set", scope: access.Run, description: runDescription, schema: runSchema, annotations: changes, task: true, call: s.runEvalSet},
		{name: "get_results", scope: access.Read, description: resultsDescription, schema: resultsSchema, annotations: reads, call: s.getResults},
		{name: "list_runs", scope: access.Read, description: runsDescription, schema: runsSchema, annotations: reads, call: s.listRuns},
		{name: "list_triggers", scope: access.Read, description: triggersDescription, schema: triggersSchema, annotations: reads, call: s.listTriggers},
		{name: "deliver", scope: access.Deliver, description: deliverDescription, schema: deliverSchema, annotations: changes, call: s.deliver},
		{name: "__mesh_job_status", scope: access.Read, description: statusDescription, schema: jobSchema, annotations: reads, call: s.jobStatus},
		{name: "__mesh_job_result", scope: access.Read, description: resultDescription, schema: jobSchema, annotations: reads, call: s.jobResult},
		{name: "__mesh_job_cancel", scope: access.Run, description: cancelDescription, schema: cancelSchema, annotations: ends, call: s.jobCancel},
	}
}

// listTools lists the tools that the caller may use.
func (s *Server) listTools(q *request) (json.RawMessage, error) {
	var list []json.RawMessage
	for _, t := range s.tools {
		if q.caller.May(t.scope) {
			list = append(list, t.shown(q.Era))
		}
	}
	tools, err := json.Marshal(append([]json.RawMessage{}, list...))
	if err != nil {
		return nil, err
	}
	o := jsonobj.Object{{Key: "tools", Value: tools}}
	if q.Era == mcp.Modern {
		return complete(o.Set("ttlMs", json.RawMessage("0")).Set("cacheScope", json.RawMessage(`"private"`))), nil
	}
	return o.JSON(), nil
}

// shown is a tool as clients of an era are told of it. Only Legacy says of tools that they can be
// tasks.
func (t tool) shown(era mcp.Era) json.RawMessage {
	o := jsonobj.Object{
		{Key: "name", Value: jsonobj.Quote(t.name)}, {Key: "description", Value: jsonobj.Quote(t.description)},
		{Key: "inputSchema", Value: json.RawMessage(t.schema)}, {Key: "annotations", Value: json.RawMessage(t.annotations)},
	}
	if era == mcp.Legacy {
		support := `{"taskSupport":"forbidden"}`
		if t.task {
			support = `{"taskSupport":"optional"}`
		}
		o = o.Set("execution", json.RawMessage(support))
	}
	return o.JSON()
}

// call serves tools/call.
func (s *Server) call(ctx context.Context, q *request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(q.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	t, err := s.find(q, params.Text("name"))
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
	case asTask && t.task:
		return s.startTask(ctx, q, arguments)
	case asTask && q.Era == mcp.Legacy:
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Tool %s cannot be called as a task (taskSupport: forbidden)", t.name)
	}
	document, err := t.call(ctx, q, arguments)
	if err != nil {
		return s.failed(q, t, err)
	}
	return q.result(document)
}

func (s *Server) find(q *request, name string) (tool, error) {
	for _, t := range s.tools {
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

// argumentError says what is wrong with the arguments of a call. The model is told, and can try
// again.
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
		return &argumentError{wrong.Field + ": this cannot be a JSON " + wrong.Value + "; the tool's input schema says what is expected"}
	case err != nil:
		return &argumentError{"arguments: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

// failed is the answer to a call that has failed: a result that the model can read if something can
// be done about it, else an error.
func (s *Server) failed(q *request, t tool, err error) (json.RawMessage, error) {
	var said *mcp.Error
	var wrong *argumentError
	var input *runner.InputError
	switch {
	case errors.As(err, &said):
		return nil, said
	case errors.As(err, &wrong), errors.As(err, &input), errors.Is(err, service.ErrConflict), errors.Is(err, store.ErrNotFound):
		return q.refusal(err.Error()), nil
	case ctxEnded(err):
		return nil, err
	}
	return nil, s.internal("the tool "+t.name, err)
}

func ctxEnded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, mcp.ErrCancelled) || errors.Is(err, mcp.ErrShutdown)
}

// result is a document as the result of a call.
func (q *request) result(document any) (json.RawMessage, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return q.inEra(toolResult(text, false)), nil
}

// refusal is the result of a call that has failed.
func (q *request) refusal(text string) json.RawMessage {
	content, _ := json.Marshal([]map[string]string{{"type": "text", "text": text}}) // strings always marshal
	return q.inEra(jsonobj.Object{{Key: "content", Value: content}, {Key: "isError", Value: json.RawMessage("true")}})
}

// toolResult has a document as text, too, for clients that know no structured results.
func toolResult(document json.RawMessage, isError bool) jsonobj.Object {
	content, _ := json.Marshal([]map[string]string{{"type": "text", "text": string(document)}}) // strings always marshal
	o := jsonobj.Object{{Key: "content", Value: content}, {Key: "structuredContent", Value: document}, {Key: "isError", Value: json.RawMessage("false")}}
	if isError {
		o = o.Set("isError", json.RawMessage("true"))
	}
	return o
}

func (q *request) inEra(o jsonobj.Object) json.RawMessage {
	if q.Era == mcp.Modern {
		return complete(o)
	}
	return o.JSON()
}
