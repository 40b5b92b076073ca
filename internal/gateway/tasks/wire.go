package tasks

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// isoMillis is how tasks write times.
const isoMillis = "2006-01-02T15:04:05.000Z07:00"

func isoTime(t time.Time) json.RawMessage { return jsonobj.Quote(t.UTC().Format(isoMillis)) }

func millis(d time.Duration) json.RawMessage {
	return strconv.AppendInt(nil, d.Milliseconds(), 10)
}

// setTask puts a task into an object: what is our part of it.
func setTask(o jsonobj.Object, rec store.MCPTask, status, ttl, poll string) jsonobj.Object {
	o = o.Set("taskId", jsonobj.Quote(rec.ID)).Set("status", jsonobj.Quote(status))
	if rec.Message != "" {
		o = o.Set("statusMessage", jsonobj.Quote(rec.Message))
	} else {
		o = o.Delete("statusMessage")
	}
	return o.Set("createdAt", isoTime(rec.CreatedAt)).Set("lastUpdatedAt", isoTime(rec.UpdatedAt)).Set(ttl, millis(rec.TTL)).Set(poll, millis(rec.Poll))
}

// legacyTask is the Task of 2025-11-25.
func legacyTask(rec store.MCPTask) json.RawMessage {
	return setTask(nil, rec, rec.Status, "ttl", "pollInterval").JSON()
}

// modernTask is the DetailedTask of the extension. A tool that has failed is a task that is
// completed there.
func modernTask(rec store.MCPTask) jsonobj.Object {
	status := rec.Status
	if status == mcptask.Failed && rec.Error == nil {
		status = mcptask.Completed
	}
	o := setTask(nil, rec, status, "ttlMs", "pollIntervalMs")
	switch {
	case status == mcptask.Completed && rec.Result != nil:
		o = o.Set("result", rec.Result)
	case status == mcptask.Failed && rec.Error != nil:
		o = o.Set("error", rec.Error)
	case status == mcptask.InputRequired && rec.InputRequests != nil:
		o = o.Set("inputRequests", rec.InputRequests)
	}
	return o
}

// created is the answer to a call that has become a task. What its server said beside the task
// itself stays.
func (t *task) created(era mcp.Era) json.RawMessage {
	t.mu.Lock()
	rec, reply := t.rec, t.reply
	t.mu.Unlock()
	rec.Status = mcptask.Working // as every task begins; what came since then is told otherwise
	said, _ := jsonobj.ParseObject(reply)
	meta := said.Object("_meta").Delete(mcp.MetaRelatedTask, mcptask.MetaForeignTask, mcptask.MetaForeignRelated, mcp.MetaServerInfo)
	var o jsonobj.Object
	if era == mcp.Legacy {
		var theirs jsonobj.Object
		if said.Has("task") {
			theirs = said.Object("task")
		}
		o = jsonobj.Object{{Key: "task", Value: setTask(theirs, rec, rec.Status, "ttl", "pollInterval").JSON()}}
	} else {
		if said.Text("resultType") == "task" {
			o = said.Delete("_meta")
		}
		o = setTask(o.Set("resultType", json.RawMessage(`"task"`)), rec, rec.Status, "ttlMs", "pollIntervalMs")
	}
	if len(meta) > 0 {
		o = o.Set("_meta", meta.JSON())
	}
	return o.JSON()
}

// payloadOf is what a task has ended with, as the protocol of the client wants it. related says
// that the result names the task.
func payloadOf(rec store.MCPTask, era mcp.Era, related bool) (json.RawMessage, error) {
	switch {
	case rec.Error != nil:
		return nil, mcp.ParseError(rec.Error)
	case rec.Result == nil:
		return nil, mcp.Errorf(mcp.CodeInternal, "the task %s is %s and has no result", rec.ID, rec.Status)
	}
	o, err := jsonobj.ParseObject(rec.Result)
	if err != nil {
		return rec.Result, nil
	}
	result := rec.Result
	switch {
	case era == mcp.Legacy && o.Has("resultType"):
		result = mcp.WithoutMeta(o.Delete("resultType").JSON(), mcp.MetaServerInfo)
	case era == mcp.Modern && !o.Has("resultType"):
		result = o.Set("resultType", json.RawMessage(`"complete"`)).JSON()
	}
	if related {
		result = mcp.WithMeta(result, mcp.MetaRelatedTask, mcptask.Params(rec.ID))
	}
	return result, nil
}
