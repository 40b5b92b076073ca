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

// upstreamTask is the server's own task, of either era, which is polled and updated over one
// connection. It knows nothing of the task that our client sees.
type upstreamTask struct {
	server *gateway.Server
	client *mcp.Client
	handle *wait.MCPTask
	// reply is the server's answer when it made the task. It is nil in any later process.
	reply json.RawMessage
	// capabilities are those of the client for whom the task is.
	capabilities jsonobj.Object
}

// upstreamTask makes the upstreamTask that follows a task which the server of the facade has made.
func (s *facade) upstreamTask(client *mcp.Client, handle *wait.MCPTask,
	reply json.RawMessage, capabilities jsonobj.Object) *upstreamTask {
	return &upstreamTask{s.e.Server(), client, handle, reply, capabilities}
}

// taskEnd is the end of a server's task.
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

// work returns what another process needs to go on with the task.
func (u *upstreamTask) work() json.RawMessage {
	work, err := json.Marshal(taskWork{u.handle, u.capabilities.JSON()})
	if err != nil {
		return nil // the capabilities were no JSON; the task is lost with us
	}
	return work
}

// longestAnswer is how long a server may take to report a task, or to take an answer, if a call may
// take as long.
const longestAnswer = time.Minute

func (u *upstreamTask) timeout() time.Duration { return min(longestAnswer, u.server.CallLimit()) }

// get asks the server for the state of the task.
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

// update tells a modern server the answers to its questions.
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

// end returns the end of a task that is done. The error is errNoResult if its result is not there
// yet.
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

// result gets the payload of a legacy task. While the task waits for input, result waits, and the
// server asks its questions. It returns nil without an error if the task has ended in that time;
// then its end has to be asked for again.
func (u *upstreamTask) result(ctx context.Context, w mcptask.Wire, ask mcptask.Asker) (*taskEnd, error) {
	ended := mcptask.IsTerminal(w.Status)
	result, err := u.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksResult, Params: mcptask.Params(u.handle.ID), Asked: ask,
		Notified: func(string, json.RawMessage) {}, // tasks/get reports the status
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

// lost says that the server has forgotten the task, and how long it had promised to keep it.
func (u *upstreamTask) lost(err error) error {
	until := "for ever"
	if at := u.handle.ExpiresAt(); !at.IsZero() {
		until = "until " + at.UTC().Format(time.RFC3339)
	}
	return mcp.Errorf(mcp.CodeInternal,
		"MCP server %q has forgotten the task before its result could be fetched, though it was to keep it %s: %v",
		u.server.Name, until, err)
}

// cancelTimeout is how long a server may take to be told that nobody wants a task any more.
const cancelTimeout = 5 * time.Second

// cancel tells the server that nobody wants the task any more.
func (u *upstreamTask) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	_ = mcptask.Cancel(ctx, u.client, u.handle) // a server that cannot be told will forget it
}
