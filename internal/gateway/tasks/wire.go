package tasks

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
)

// view is a task as its client sees it.
func view(rec store.MCPTask) taskwire.Task {
	return taskwire.Task{
		ID: rec.ID, Status: rec.Status, Message: rec.Message, CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt,
		TTL: rec.TTL, Poll: rec.Poll, InputRequests: rec.InputRequests, Result: rec.Result, Error: rec.Error,
	}
}

// created is the answer to a call that has become a task. It keeps what the server said beside the
// task itself.
func (t *task) created(era mcp.Era) json.RawMessage {
	rec, _ := t.record()
	var said jsonobj.Object
	if u := t.atServer(); u != nil {
		said, _ = jsonobj.ParseObject(u.reply)
	}
	meta := said.Object("_meta").Delete(mcp.MetaRelatedTask,
		mcptask.MetaForeignTask, mcptask.MetaForeignRelated, mcp.MetaServerInfo)
	var upstream jsonobj.Object
	switch {
	case era == mcp.Legacy && said.Has("task"):
		upstream = said.Object("task")
	case era == mcp.Modern && said.Text("resultType") == "task":
		upstream = said.Delete("_meta")
	}
	return view(rec).Created(era, upstream, meta)
}
