package tasks

import (
	"errors"
	"strings"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// startUpstreamTask has the fixture's server make a task of a call.
func startUpstreamTask(t *testing.T, era mcp.Era, tool, arguments string) *upstreamTask {
	t.Helper()
	_, server := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Era(era)})
	capabilities := jsonobj.Object{{Key: "elicitation", Value: mcp.EmptyObject}}
	client, err := mcp.Connect(t.Context(), server.Target, mcp.ClientOptions{Protocol: era, Capabilities: capabilities.JSON()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	params := `{"name":"` + tool + `","arguments":` + arguments + `}`
	if era == mcp.Legacy {
		params = params[:len(params)-1] + `,"task":{}}`
	}
	reply, err := client.Call(t.Context(), mcp.Call{Method: mcp.MethodToolsCall, Params: []byte(params), Capabilities: declared(capabilities)})
	if err != nil {
		t.Fatal(err)
	}
	handle := mcptask.HandleIn(reply, client, time.Now())
	if handle == nil {
		t.Fatalf("no task: %s", reply)
	}
	return &upstreamTask{&server, client, handle, reply, capabilities}
}

// The result of a task is the same in both eras.
func TestTheEndOfAnUpstreamTask(t *testing.T) {
	t.Parallel()
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		u := startUpstreamTask(t, era, "compute", `{"ms":1,"text":"done"}`)
		var w mcptask.Wire
		gatewaytest.Eventually(t, "the task to end", func() (ended bool) {
			var err error
			if w, err = u.get(t.Context()); err != nil {
				t.Fatal(err)
			}
			return mcptask.IsTerminal(w.Status)
		})
		end, err := u.end(t.Context(), w, nil)
		if err != nil || end.status != mcptask.Completed || !strings.Contains(string(end.result), `"done"`) || end.err != nil {
			t.Errorf("%s: %+v, %v", era, end, err)
		}
	}
}

// A modern task that is done may have nothing to give yet, and one whose tool has failed is a
// failed task.
func TestModernEnd(t *testing.T) {
	t.Parallel()
	if end, err := modernEnd(mcptask.Wire{Status: mcptask.Completed}); !errors.Is(err, errNoResult) {
		t.Errorf("%+v, %v", end, err)
	}
	end, err := modernEnd(mcptask.Wire{Status: mcptask.Completed, Result: []byte(`{"isError":true}`)})
	if err != nil || end.status != mcptask.Failed || end.result == nil {
		t.Errorf("%+v, %v", end, err)
	}
	end, err = modernEnd(mcptask.Wire{Status: mcptask.Failed, Error: []byte(`{"code":1}`), Result: []byte(`{}`)})
	if err != nil || end.result != nil || end.err == nil {
		t.Errorf("%+v, %v", end, err)
	}
}

// A task that is cancelled is so at its server, too.
func TestCancelOfAnUpstreamTask(t *testing.T) {
	t.Parallel()
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		u := startUpstreamTask(t, era, "compute", `{"ms":600000,"text":"x"}`)
		u.cancel(t.Context())
		if w, err := u.get(t.Context()); err != nil || w.Status != mcptask.Cancelled {
			t.Errorf("%s: %+v, %v", era, w, err)
		}
	}
}

// Who loses a task says how long its server was to keep it.
func TestALostUpstreamTask(t *testing.T) {
	t.Parallel()
	u := &upstreamTask{server: &gateway.Server{Name: "forgetful"}, handle: &wait.MCPTask{}}
	if text := u.lost(errors.New("Task not found")).Error(); !strings.Contains(text, `"forgetful"`) || !strings.Contains(text, "for ever: Task not found") {
		t.Error(text)
	}
}

// Another process goes on with the task and the client's capabilities.
func TestTheWorkOfAnUpstreamTask(t *testing.T) {
	t.Parallel()
	u := &upstreamTask{handle: &wait.MCPTask{ID: "theirs"}, capabilities: jsonobj.Object{{Key: "elicitation", Value: mcp.EmptyObject}}}
	want := `"capabilities":{"elicitation":{}}`
	if work := string(u.work()); !strings.Contains(work, `"theirs"`) || !strings.Contains(work, want) {
		t.Error(work)
	}
}
