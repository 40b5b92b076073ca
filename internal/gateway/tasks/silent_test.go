package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// silent is a scripted server that does not answer some requests.
type silent struct {
	scripted
	to    string
	began chan string
}

func (s silent) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == s.to {
		s.began <- r.Method
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return s.scripted.Serve(ctx, r)
}

func startSilent(t *testing.T, to string) (gateway.Server, <-chan string) {
	t.Helper()
	s := silent{working(func(string) {}), to, make(chan string, 100)}
	return startHandler(t, s, mcp.Legacy), s.began
}

// Nobody waits for ever for a server that does not answer.
func TestServersThatDoNotAnswer(t *testing.T) {
	testenv.NeedSlow(t) // and not beside other tests: the limits are short
	const plain, asTask = `{"name":"tool","arguments":{}}`, `{"name":"tool","arguments":{},"task":{}}`
	for _, params := range []string{plain, asTask} {
		t.Run("the call "+params, func(t *testing.T) {
			t.Parallel()
			s, _ := startSilent(t, mcp.MethodToolsCall)
			s.Timeout = time.Second
			g := startTaskGateway(t, Options{}, s)
			if e := g.client(mcp.Legacy, "scripted").Refused(mcp.CodeInternal, mcp.MethodToolsCall, "%s", params); !strings.Contains(e.Message, gateway.ErrTimeout.Error()) {
				t.Error(e)
			}
			gatewaytest.Eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
		})
	}

	t.Run("the list of tools", func(t *testing.T) {
		t.Parallel()
		s, began := startSilent(t, mcp.MethodToolsList)
		s.Timeout = time.Second
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "scripted")
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, asTask) // of a tool that nobody knows
		if n := len(began); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})

	t.Run("a call whose time to live is over", func(t *testing.T) {
		t.Parallel()
		s, _ := startSilent(t, mcp.MethodToolsCall)
		g := startTaskGateway(t, Options{MaxTTL: time.Second, Cleanup: 20 * time.Millisecond}, s)
		g.client(mcp.Legacy, "scripted").Refused(mcp.CodeInternal, mcp.MethodToolsCall, asTask)
		gatewaytest.Eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
	})

	t.Run("a task of a client that does not know tasks", func(t *testing.T) {
		t.Parallel()
		cancelled := make(chan string, 100)
		s := startScripted(t, working(func(method string) {
			if method == mcp.MethodTasksCancel {
				cancelled <- method
			}
		}))
		g := startTaskGateway(t, Options{MaxTTL: time.Second}, s)
		if e := g.client(mcp.Legacy, "scripted").Refused(mcp.CodeInternal, mcp.MethodToolsCall, plain); !strings.Contains(e.Message, "within 1s") {
			t.Error(e)
		}
		gatewaytest.WaitFor(t, cancelled)
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
	})
}

// What another task has taken out of the store is not followed any more, and its server is told.
func TestExpiredTasksThatMadeRoom(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	cancelled := make(chan string, 100)
	g := startTaskGateway(t, Options{Cleanup: time.Hour}, startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
		id := params.Text("taskId")
		switch method {
		case mcp.MethodToolsCall:
			return `{"task":` + wireTaskOf(params.Object("arguments").Text("id"), mcptask.Working) + `}`, nil
		case mcp.MethodTasksCancel:
			cancelled <- id
		}
		news, _ := jsonobj.ParseObject(json.RawMessage(wireTaskOf(id, mcptask.Working)))
		return string(news.Set("statusMessage", jsonobj.Quote(fmt.Sprint(looks.Add(1)))).JSON()), nil
	}))
	c := g.client(mcp.Legacy, "scripted")
	first := c.Must(mcp.MethodToolsCall, `{"name":"tool","arguments":{"id":"first"},"task":{"ttl":50}}`).Object("task").Text("taskId")
	gatewaytest.Eventually(t, "the task is not forgotten", func() bool {
		_, err := c.Try(mcp.MethodTasksGet, fmt.Sprintf(`{"taskId":%q}`, first))
		return err != nil
	})
	c.Task("tool", `{"id":"second"}`)
	if id := gatewaytest.WaitFor(t, cancelled); id != "first" {
		t.Error(id)
	}
	if n := g.active(); n != 2 { // the second, by its name and by its server's
		t.Errorf("%d tasks are looked after", n)
	}
}

// writes counts what changes in the store.
type writes struct {
	taskStore
	n atomic.Int64
}

func (w *writes) ChangeMCPTask(ctx context.Context, t store.MCPTask) (store.MCPTask, bool, error) {
	w.n.Add(1)
	return w.taskStore.ChangeMCPTask(ctx, t)
}

func TestPollsThatTellNothingNew(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	g := startTaskGateway(t, Options{}, startScripted(t, working(func(method string) {
		if method == mcp.MethodTasksGet {
			looks.Add(1)
		}
	})))
	w := &writes{taskStore: g.store}
	g.tasks.o.Store = w
	c := g.client(mcp.Legacy, "scripted")
	id := c.Task("tool", "{}")
	more := func(n int64) {
		until := looks.Load() + n
		gatewaytest.Eventually(t, "the server is not asked", func() bool { return looks.Load() >= until })
	}
	more(2) // what the first one tells is new
	before, n := c.Get(id), w.n.Load()
	more(3)
	if after := c.Get(id); string(after.JSON()) != string(before.JSON()) {
		t.Errorf("it was %s, it is %s", before.JSON(), after.JSON())
	}
	if now := w.n.Load(); now != n {
		t.Errorf("%d writes", now-n)
	}
}
