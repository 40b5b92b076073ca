package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// taskSource says who makes the task for a call.
type taskSource int

const (
	noTask         taskSource = iota // the tool is not to be called as a task
	ownTask                          // the gateway runs an ordinary call
	upstreamSource                   // the server takes the call as a task
	requiredTask                     // the server takes the call as a task only
	offeredTask                      // the server decides, once it knows that the client can take a task
)

func (s *facade) sourceOf(l *gateway.Upstream, t gateway.Tool, listed bool) taskSource {
	legacy, tasks := l.Client().Era() == mcp.Legacy, l.Offered().Tasks
	switch {
	case !listed:
		return noTask // the server reports the error
	case legacy && t.TaskSupport == "required":
		return requiredTask
	case t.TaskSupport == "forbidden" && (tasks || !s.k.o.Widen):
		return noTask
	case legacy && tasks && t.TaskSupport == "optional":
		return upstreamSource
	case legacy && tasks:
		return noTask
	case !legacy && tasks:
		return offeredTask
	}
	return ownTask
}

// lookupTool returns what is known of a tool, and lists the tools for that if need be. The result
// may be out of date at once, since lists change.
func (s *facade) lookupTool(ctx context.Context, l *gateway.Upstream, name string) (t gateway.Tool, listed bool) {
	ctx, cancel := context.WithTimeout(ctx, s.e.Server().CallLimit()) // for all tries together
	defer cancel()
	for range 3 {
		if t, listed = s.e.Tools().Lookup(name); listed {
			break
		}
		s.e.Tools().Find(ctx, l, name)
	}
	return t, listed
}

// toolCall is a call of a tool on its way to a result or a task.
type toolCall struct {
	l *gateway.Upstream
	r *mcp.Request
	// name is the tool's. params are the client's.
	name   string
	params jsonobj.Object
	// capabilities are the client's. asTask says that it can take a task or, if it is legacy, that it
	// wants one, for as long as ttl.
	capabilities jsonobj.Object
	asTask       bool
	ttl          time.Duration
	// source says who makes its task. It does not change, whatever is learnt of the tools meanwhile,
	// because some tools must not be called without a task.
	source taskSource
}

// info is clientInfo for a modern server.
func (c *toolCall) info() json.RawMessage {
	if c.r.Era == mcp.Modern {
		return c.r.Meta().Get(mcp.MetaClientInfo)
	}
	return c.l.Info()
}

// read reads the wishes of a client.
func (s *facade) read(l *gateway.Upstream, r *mcp.Request) (c toolCall, err error) {
	c = toolCall{l: l, r: r, capabilities: l.Capabilities(), ttl: s.k.o.TTL}
	if c.params, err = jsonobj.ParseObject(r.Params); err != nil {
		return c, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	c.name = c.params.Text("name")
	if r.Era == mcp.Modern {
		c.capabilities = r.Meta().Object(mcp.MetaClientCapabilities)
		c.asTask = taskwire.Declares(c.capabilities)
		c.params = c.params.Delete("task") // belongs to another era, and so means nothing
		return c, nil
	}
	if wish := c.params.Get("task"); !jsonobj.IsNull(wish) {
		c.asTask = true
		task, err := jsonobj.ParseObject(wish)
		if err != nil {
			return c, mcp.Errorf(mcp.CodeInvalidParams, "params.task: %v", err)
		}
		var ms float64
		if ttl := task.Get("ttl"); !jsonobj.IsNull(ttl) {
			if json.Unmarshal(ttl, &ms) != nil || ms <= 0 {
				return c, mcp.Errorf(mcp.CodeInvalidParams, "params.task.ttl: expected milliseconds, a positive number")
			}
			c.ttl = time.Duration(max(1, min(ms, float64(s.k.o.MaxTTL.Milliseconds())))) * time.Millisecond
		}
	}
	return c, nil
}

// needsTasks reports whether a server's error says that it needs tasks.
func needsTasks(err error) bool {
	var said *mcp.Error
	if !errors.As(err, &said) || said.Code != mcp.CodeMissingCapability {
		return false
	}
	data, _ := jsonobj.ParseObject(said.Data())
	return taskwire.Declares(data.Object("requiredCapabilities"))
}
