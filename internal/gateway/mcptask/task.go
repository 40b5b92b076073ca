// Package mcptask follows an MCP task on its server, in both protocol eras. It finds the handle of
// a task in the result of a call, polls the task, answers its questions, and reads its result. It
// knows neither gateways nor who waits for the task.
package mcptask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// The statuses of tasks. Both eras have the same.
const (
	Working       = "working"
	InputRequired = "input_required"
	Completed     = "completed"
	Failed        = "failed"
	Cancelled     = "cancelled"
)

// IsStatus reports whether a status is one that a task can have.
func IsStatus(status string) bool {
	return status == Working || status == InputRequired || IsTerminal(status)
}

// UnknownStatus is the error of a task whose server gives it a status that does not exist.
func UnknownStatus(status string) *mcp.Error {
	return mcp.Errorf(mcp.CodeInternal, "its server says that the task is %.100q; expected %s, %s, %s, %s or %s",
		status, Working, InputRequired, Completed, Failed, Cancelled)
}

// IsTerminal reports whether a task with this status has ended.
func IsTerminal(status string) bool {
	return status == Completed || status == Failed || status == Cancelled
}

// Wire is a task as both eras write it.
type Wire struct {
	TaskID, Status, StatusMessage string
	CreatedAt                     time.Time
	// TTL and PollInterval are in milliseconds. TTL is nil if there is none.
	TTL           *int64
	PollInterval  int64
	Result, Error json.RawMessage
	InputRequests jsonobj.Object
}

// UnmarshalJSON implements json.Unmarshaler. Malformed members count as absent: a task with an odd
// time to live is a task all the same.
func (w *Wire) UnmarshalJSON(b []byte) error {
	o, err := jsonobj.ParseObject(slices.Clone(b))
	if err != nil {
		return err
	}
	*w = Wire{TaskID: o.Text("taskId"), Status: o.Text("status"),
		StatusMessage: o.Text("statusMessage"), InputRequests: o.Object("inputRequests")}
	w.CreatedAt, _ = time.Parse(time.RFC3339, o.Text("createdAt"))
	for _, key := range []string{"ttl", "ttlMs"} {
		if ms, ok := wireMillis(o.Get(key)); ok {
			w.TTL = &ms
		}
	}
	for _, key := range []string{"pollInterval", "pollIntervalMs"} {
		if ms, ok := wireMillis(o.Get(key)); ok {
			w.PollInterval = ms
		}
	}
	for key, to := range map[string]*json.RawMessage{"result": &w.Result, "error": &w.Error} {
		if value := o.Get(key); !jsonobj.IsNull(value) {
			*to = value
		}
	}
	return nil
}

// wireMillis reads a sensible number of milliseconds, up to some decades.
func wireMillis(raw json.RawMessage) (ms int64, ok bool) {
	var f float64
	if jsonobj.IsNull(raw) || json.Unmarshal(raw, &f) != nil || f < 0 || f > 1e12 {
		return 0, false
	}
	return int64(f), true
}

func (w *Wire) Apply(t *wait.MCPTask) {
	t.Status, t.Message = w.Status, w.StatusMessage
	if !w.CreatedAt.IsZero() {
		t.CreatedAt = w.CreatedAt
	}
	t.TTLMs, t.PollMs = w.TTL, w.PollInterval
}

// HandleIn finds the handle of a task in the result of a call. It looks for that of the extension
// first, then for those of 2025-11-25.
func HandleIn(result json.RawMessage, c *mcp.Client, now time.Time) *wait.MCPTask {
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		return nil
	}
	raw, foreign := result, foreignTask(o)
	switch {
	case o.Text("resultType") == "task":
	case o.Has("task") && !o.Has("content"):
		raw = o.Get("task")
	case foreign != nil && c.Era() == mcp.Legacy:
		raw = foreign
	default:
		return nil
	}
	var w Wire
	if json.Unmarshal(raw, &w) != nil || w.TaskID == "" {
		return nil
	}
	t := &wait.MCPTask{ID: w.TaskID, Era: c.Era(), CreatedAt: now, Session: c.State()}
	w.Apply(t)
	return t
}

// ErrTaskLost says that a server does not know a task any more: its time to live is over, or it has
// lost its memory.
var ErrTaskLost = errors.New("the server does not know the task any more")

// Asker answers what a server wants to know. method is elicitation/create, sampling/createMessage
// or roots/list.
type Asker func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error)

// Decline is an Asker for when nobody can be asked.
func Decline(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *mcp.Error) {
	return mcp.DefaultAnswer(method)
}

// Poll asks a server once for a task and updates its status; now is the present time. The outcome
// is not nil if the task has ended and its result is there. ask answers the questions of the task.
// If ask is nil and a person could answer, the error is an [*InputRequiredError]. tasks/result,
// which blocks, is called only when there is a result.
func Poll(ctx context.Context, c *mcp.Client, t *wait.MCPTask, now time.Time, ask Asker) (*wait.WorkResult, error) {
	result, err := c.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksGet, Params: Params(t.ID), Capabilities: extensionCapabilities,
	})
	var said *mcp.Error
	switch {
	case errors.As(err, &said) && said.Code == mcp.CodeInvalidParams, errors.Is(err, mcp.ErrSessionLost):
		return nil, fmt.Errorf("%w: %w", ErrTaskLost, err)
	case err != nil:
		return nil, err
	}
	var w Wire
	if err := json.Unmarshal(result, &w); err != nil || w.Status == "" {
		return nil, fmt.Errorf("the answer to tasks/get is no task: %.200s", result)
	}
	w.Apply(t)
	if !IsStatus(t.Status) {
		return &wait.WorkResult{Error: UnknownStatus(t.Status).JSON()}, nil
	}
	if t.Status == InputRequired && ask == nil {
		asked := wait.Input{Message: t.Message}
		if w.InputRequests != nil {
			asked.Requests = w.InputRequests.JSON()
		}
		if t.Era == mcp.Legacy || asked.Questions() != nil {
			return nil, &InputRequiredError{asked}
		}
		ask = Decline
	}
	switch {
	case t.Era == mcp.Modern && t.Status == InputRequired:
		return nil, answerTask(ctx, c, t, w.InputRequests, ask)
	case t.Era == mcp.Modern && t.Status == Completed && w.Result != nil:
		return &wait.WorkResult{Result: w.Result}, nil
	case t.Era == mcp.Modern && t.Status == Failed && w.Error != nil:
		return &wait.WorkResult{Error: w.Error}, nil
	case t.Era == mcp.Modern && (t.Status == Completed || t.Status == Failed):
		if t.EndedAt.IsZero() {
			t.EndedAt = now // the server's own clock may be wrong
		}
		if now.Sub(t.EndedAt) < lateResult {
			return nil, nil // some report the end a little before they have the result
		}
		return &wait.WorkResult{Error: mcp.Errorf(mcp.CodeInternal,
			"the task is %s, and its server gives nothing of it: %s", t.Status, t.Message).JSON()}, nil
	case t.Status == Cancelled:
		return &wait.WorkResult{Error: mcp.Errorf(mcp.CodeInternal, "the task was cancelled at its server").JSON()}, nil
	case t.Era == mcp.Legacy && (t.Status == Completed || t.Status == Failed || t.Status == InputRequired):
		return taskResult(ctx, c, t, ask)
	}
	return nil, nil
}

// extensionCapabilities declare the extension for tasks, as every request for one must.
var extensionCapabilities = json.RawMessage(`{"extensions":{"` + mcp.ExtensionTasks + `":{}}}`)

func Params(id string) json.RawMessage {
	return jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(id)}}.JSON()
}

// lateResult is how long after the end of a modern task its result may be missing.
const lateResult = time.Minute

// resultTimeout is how long tasks/result may take for a task that has ended. Some servers report
// the end a little before they have the result.
const resultTimeout = 10 * time.Second

// taskResult gets the result of a legacy task. While the request is open the server asks its
// questions.
func taskResult(ctx context.Context, c *mcp.Client, t *wait.MCPTask, ask Asker) (*wait.WorkResult, error) {
	if t.Status != InputRequired {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, resultTimeout)
		defer cancel()
	}
	result, err := c.Call(ctx, mcp.Call{Method: mcp.MethodTasksResult, Params: Params(t.ID),
		Asked: func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			return ask(ctx, method, params)
		}})
	var said *mcp.Error
	switch {
	case errors.As(err, &said):
		t.Status = Failed
		return &wait.WorkResult{Error: said.JSON()}, nil
	case err != nil:
		return nil, err
	}
	if !IsTerminal(t.Status) {
		t.Status = Completed
	}
	return &wait.WorkResult{Result: mcp.WithoutMeta(result, mcp.MetaRelatedTask, MetaForeignRelated)}, nil
}

// answerTask answers the questions of a modern task.
func answerTask(ctx context.Context, c *mcp.Client, t *wait.MCPTask, requests jsonobj.Object, ask Asker) error {
	return Answer(ctx, c, t, mcp.AnswersTo(requests,
		func(_, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			return ask(ctx, method, params)
		}))
}

// Answer sends answers by their keys.
func Answer(ctx context.Context, c *mcp.Client, t *wait.MCPTask, responses jsonobj.Object) error {
	if len(responses) == 0 {
		return nil
	}
	params := jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(t.ID)}, {Key: "inputResponses", Value: responses.JSON()}}
	_, err := c.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksUpdate, Params: params.JSON(), Capabilities: extensionCapabilities,
	})
	return err
}

// Cancel asks a server to cancel a task. A task that has ended already is no error.
func Cancel(ctx context.Context, c *mcp.Client, t *wait.MCPTask) error {
	_, err := c.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksCancel, Params: Params(t.ID), Capabilities: extensionCapabilities,
	})
	var said *mcp.Error
	if errors.As(err, &said) && said.Code == mcp.CodeInvalidParams {
		return nil
	}
	return err
}

// InputRequiredError says that a task goes on only with an answer.
type InputRequiredError struct{ Input wait.Input }

// Error implements error.
func (e *InputRequiredError) Error() string { return "the task waits for an answer" }

// InputOf returns the question to a person in the result of a call; nil for every other result.
func InputOf(result json.RawMessage) *wait.Input {
	o, err := jsonobj.ParseObject(result)
	if err != nil || o.Text("resultType") != "input_required" {
		return nil
	}
	if in := (&wait.Input{Requests: o.Get("inputRequests"), State: o.Get("requestState")}); in.Questions() != nil {
		return in
	}
	return nil
}

// FastMCP 2.14 takes a call as a task of 2025-11-25. It answers with an ordinary result that has no
// content and names the task under keys of its own.
const (
	MetaForeignTask    = "modelcontextprotocol.io/task"
	MetaForeignRelated = "modelcontextprotocol.io/related-task"
)

// foreignTask returns the task that such a result names; nil for every other result.
func foreignTask(o jsonobj.Object) json.RawMessage {
	var content []json.RawMessage
	if json.Unmarshal(o.Get("content"), &content) == nil && len(content) > 0 || o.Has("structuredContent") {
		return nil
	}
	return o.Object("_meta").Get(MetaForeignTask)
}

// Names reports whether a result stands for a task, in whatever way it names it. Such a result has
// no content, and must not be taken for a final one.
func Names(result json.RawMessage) bool {
	o, err := jsonobj.ParseObject(result)
	return err == nil && (o.Text("resultType") == "task" || o.Has("task") && !o.Has("content") || foreignTask(o) != nil)
}

// IsLost reports whether a result stands for a task that cannot be followed, because it has no id
// or, where it is named in a way of its own, because the server does not tell of it.
func IsLost(ctx context.Context, c *mcp.Client, result json.RawMessage) bool {
	if !Names(result) {
		return false
	}
	o, _ := jsonobj.ParseObject(result)
	t := HandleIn(result, c, time.Time{})
	if t == nil || foreignTask(o) == nil {
		return t == nil
	}
	answer, err := c.Call(ctx, mcp.Call{Method: mcp.MethodTasksGet, Params: Params(t.ID)})
	var w Wire
	return err != nil || json.Unmarshal(answer, &w) != nil || w.Status == ""
}

// LostError is the error of a call that its server has answered with such a task.
func LostError(server string) *mcp.Error {
	return mcp.Errorf(mcp.CodeInternal,
		"MCP server %q has made a task of the call and does not tell of it: its answer has no content, and names no task that it knows",
		server)
}
