// Package taskwire is the server's side of MCP tasks on the wire: how a task looks in each protocol
// era, and which requests there are about it. [Serve] answers those for a [Backend], which has the
// tasks. The package does not know who works on a task and where it is kept.
package taskwire

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// The statuses of tasks that differ between the eras, or that every task begins with.
const (
	working       = "working"
	inputRequired = "input_required"
	completed     = "completed"
	failed        = "failed"
	cancelled     = "cancelled"
)

// Task is a task as its client sees it.
type Task struct {
	ID string
	// Status is the status in Legacy. Message describes it, if there is anything to say.
	Status, Message      string
	CreatedAt, UpdatedAt time.Time
	// TTL is how long after CreatedAt the task is forgotten; 0 means that it is kept. Poll is how
	// often a client should ask.
	TTL, Poll time.Duration
	// InputRequests has the questions of the task, an object; nil for none.
	InputRequests json.RawMessage
	// Result is the result of the call, and Error its error, both raw. One of them is there when the
	// task is completed or failed.
	Result, Error json.RawMessage
}

// Legacy is the Task of 2025-11-25.
func (t Task) Legacy() json.RawMessage { return t.set(nil, mcp.Legacy).JSON() }

// Modern is the DetailedTask of the extension. A tool that has failed is a task that is completed
// there.
func (t Task) Modern() jsonobj.Object {
	if t.Status == failed && t.Error == nil {
		t.Status = completed
	}
	o := t.set(nil, mcp.Modern)
	switch {
	case t.Status == completed && t.Result != nil:
		o = o.Set("result", t.Result)
	case t.Status == failed && t.Error != nil:
		o = o.Set("error", t.Error)
	case t.Status == inputRequired && t.InputRequests != nil:
		o = o.Set("inputRequests", t.InputRequests)
	}
	return o
}

// Created is the answer to a call that has become the task. into has further members of the task,
// and meta the _meta of the answer; both may be nil.
func (t Task) Created(era mcp.Era, into, meta jsonobj.Object) json.RawMessage {
	t.Status = working // every task begins so; later statuses are reported otherwise
	o := jsonobj.Object{{Key: "task", Value: nil}}
	if era == mcp.Legacy {
		o[0].Value = t.set(into, era).JSON()
	} else {
		o = t.set(into.Set("resultType", json.RawMessage(`"task"`)), era)
	}
	if len(meta) > 0 {
		o = o.Set("_meta", meta.JSON())
	}
	return o.JSON()
}

// Payload is the outcome of the task, as the protocol of the client wants it. related says that the
// result names the task.
func (t Task) Payload(era mcp.Era, related bool) (json.RawMessage, error) {
	switch {
	case t.Error != nil:
		return nil, mcp.ParseError(t.Error)
	case t.Result == nil:
		return nil, mcp.Errorf(mcp.CodeInternal, "the task %s is %s and has no result", t.ID, t.Status)
	}
	o, err := jsonobj.ParseObject(t.Result)
	if err != nil {
		return t.Result, nil
	}
	result := t.Result
	switch {
	case era == mcp.Legacy && o.Has("resultType"):
		result = mcp.WithoutMeta(o.Delete("resultType").JSON(), mcp.MetaServerInfo)
	case era == mcp.Modern && !o.Has("resultType"):
		result = o.Set("resultType", json.RawMessage(`"complete"`)).JSON()
	}
	if related {
		named := jsonobj.Object{{Key: "taskId", Value: jsonobj.Quote(t.ID)}}
		result = mcp.WithMeta(result, mcp.MetaRelatedTask, named.JSON())
	}
	return result, nil
}

// set puts the task into an object, under the names of an era.
func (t Task) set(o jsonobj.Object, era mcp.Era) jsonobj.Object {
	ttl, poll := "ttl", "pollInterval"
	if era == mcp.Modern {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	o = o.Set("taskId", jsonobj.Quote(t.ID)).Set("status", jsonobj.Quote(t.Status))
	if t.Message != "" {
		o = o.Set("statusMessage", jsonobj.Quote(t.Message))
	} else {
		o = o.Delete("statusMessage")
	}
	kept := json.RawMessage("null")
	if t.TTL != 0 {
		kept = Millis(t.TTL)
	}
	return o.Set("createdAt", isoTime(t.CreatedAt)).Set("lastUpdatedAt", isoTime(t.UpdatedAt)).
		Set(ttl, kept).Set(poll, Millis(t.Poll))
}

// isoMillis is the layout of times in tasks.
const isoMillis = "2006-01-02T15:04:05.000Z07:00"

func isoTime(t time.Time) json.RawMessage { return jsonobj.Quote(t.UTC().Format(isoMillis)) }

// Millis is a duration as tasks write it.
func Millis(d time.Duration) json.RawMessage {
	return strconv.AppendInt(nil, d.Milliseconds(), 10)
}
