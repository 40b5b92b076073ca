package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// upstreamTask is the server's own task, of either era, which is asked for and told over one
// connection. It knows nothing of the task that our client sees.
type upstreamTask struct {
	server *gateway.Server
	client *mcp.Client
	handle *wait.MCPTask
	// reply is what the server said when it made the task; nil in another process than that.
	reply json.RawMessage
	// capabilities are those of the client for whom the task is.
	capabilities jsonobj.Object
}

// upstreamTask makes what follows a task that the server of the facade has made.
func (s *facade) upstreamTask(client *mcp.Client, handle *wait.MCPTask,
	reply json.RawMessage, capabilities jsonobj.Object) *upstreamTask {
	return &upstreamTask{s.e.Server(), client, handle, reply, capabilities}
}

// taskEnd is how a server's task has ended.
type taskEnd struct {
	status, message string
	result, err     json.RawMessage
}

// errNoResult says that a task is done and its result is not there yet.
var errNoResult = errors.New("the task is done, but its result is not there")

// declared are a client's capabilities with the extension for tasks.
func declared(capabilities jsonobj.Object) json.RawMessage {
	c := append(jsonobj.Object(nil), capabilities...)
	return c.Set("extensions",
		append(jsonobj.Object(nil), c.Object("extensions")...).Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON(),
	).JSON()
}

// taskWork is what another process needs to go on with a task.
type taskWork struct {
	Task         *wait.MCPTask   `json:"task"`
	Capabilities json.RawMessage `json:"capabilities"`
}

// work is what another process needs to go on with the task.
func (u *upstreamTask) work() json.RawMessage {
	work, err := json.Marshal(taskWork{u.handle, u.capabilities.JSON()})
	if err != nil {
		return nil // the capabilities were no JSON; the task is lost with us
	}
	return work
}

// longestAnswer is how long a server may take to say how a task is, or to take an answer, if a call
// may take as long.
const longestAnswer = time.Minute

func (u *upstreamTask) timeout() time.Duration { return min(longestAnswer, u.server.CallLimit()) }

// get asks the server how the task is.
func (u *upstreamTask) get(ctx context.Context) (w mcptask.Wire, err error) {
	result, err := u.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksGet, Params: mcptask.Params(u.handle.ID), Capabilities: declared(u.capabilities),
	})
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(result, &w); err != nil || w.Status == "" {
		return w, mcp.Errorf(mcp.CodeInternal, "the answer to tasks/get is no task: %.200s", result)
	}
	w.Apply(u.handle)
	return w, nil
}

// update tells a modern server what was answered to its questions.
func (u *upstreamTask) update(ctx context.Context, responses jsonobj.Object) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout())
	defer cancel()
	params := jsonobj.Object{
		{Key: "taskId", Value: jsonobj.Quote(u.handle.ID)}, {Key: "inputResponses", Value: responses.JSON()},
	}
	_, err := u.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksUpdate, Params: params.JSON(), Capabilities: declared(u.capabilities),
	})
	return err
}

// end is the end of a task that is done. The error is errNoResult if that is not there yet.
func (u *upstreamTask) end(ctx context.Context, w mcptask.Wire, ask mcptask.Asker) (*taskEnd, error) {
	if u.handle.Era == mcp.Modern {
		return modernEnd(w)
	}
	return u.result(ctx, w, ask)
}

// modernEnd reads the end of a task of the extension. A tool that has failed is a failed task in
// the other era.
func modernEnd(w mcptask.Wire) (*taskEnd, error) {
	end := &taskEnd{status: w.Status, message: w.StatusMessage, result: w.Result, err: w.Error}
	if end.result == nil && end.err == nil {
		return nil, errNoResult
	}
	if w.Status == mcptask.Completed {
		end.err = nil
		if o, _ := jsonobj.ParseObject(w.Result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	} else {
		end.result = nil
	}
	return end, nil
}

// result gets the payload of a legacy task, and waits for it while the task waits for input, which
// the server asks for meanwhile. It is nil without an error if the task has ended in that time: how
// is to be asked again.
func (u *upstreamTask) result(ctx context.Context, w mcptask.Wire, ask mcptask.Asker) (*taskEnd, error) {
	ended := mcptask.IsTerminal(w.Status)
	result, err := u.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksResult, Params: mcptask.Params(u.handle.ID), Asked: ask,
		Notified: func(string, json.RawMessage) {}, // tasks/get tells of the status
	})
	var said *mcp.Error
	switch {
	case errors.As(err, &said) && ended &&
		(w.Status == mcptask.Completed || said.Code == mcp.CodeInternal || said.Code == mcp.CodeInvalidParams):
		return nil, fmt.Errorf("%w: %w", errNoResult, said) // it may come yet; in the end it is the error
	case errors.As(err, &said) && ended:
		return &taskEnd{status: mcptask.Failed, message: w.StatusMessage, err: said.JSON()}, nil
	case errors.As(err, &said):
		return nil, nil
	case err != nil:
		return nil, err
	}
	end := &taskEnd{status: w.Status, message: w.StatusMessage,
		result: mcp.WithoutMeta(result, mcp.MetaRelatedTask, mcptask.MetaForeignRelated)}
	if !ended {
		end.status, end.message = mcptask.Completed, ""
		if o, _ := jsonobj.ParseObject(result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	}
	return end, nil
}

// lost says that the server has forgotten the task, and what it had said about that.
func (u *upstreamTask) lost(err error) error {
	until := "for ever"
	if at := u.handle.ExpiresAt(); !at.IsZero() {
		until = "until " + at.UTC().Format(time.RFC3339)
	}
	return mcp.Errorf(mcp.CodeInternal,
		"MCP server %q has forgotten the task before its result could be fetched, though it was to keep it %s: %v",
		u.server.Name, until, err)
}

// cancelTimeout is how long a server may take to be told that a task is not wanted any more.
const cancelTimeout = 5 * time.Second

// cancel tells the server that the task is not wanted any more.
func (u *upstreamTask) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_ = mcptask.Cancel(ctx, u.client, u.handle) // one that cannot be told will forget it
}
