package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// slowServer asks in the middle of the call before it makes a task of it, which is done at once.
type slowServer struct{ scripted }

func (s slowServer) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Method == mcp.MethodToolsCall {
		if _, err := r.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"?"}`)); err != nil {
			return nil, err
		}
	}
	return s.scripted.Serve(ctx, r)
}

// The time that a server has for an answer is not that of a person.
func TestPeopleMayTakeLongerThanServers(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	const timeout = time.Second
	for name, s := range map[string]gateway.Server{
		"a modern task asks": startHandler(t, &askingTask{}, mcp.Modern),
		"a legacy call asks": startHandler(t, slowServer{func(method string, _ jsonobj.Object) (string, *mcp.Error) {
			switch method {
			case mcp.MethodToolsCall:
				return `{"task":` + wireTaskOf("their1", mcptask.Working) + `}`, nil
			case mcp.MethodTasksResult:
				return `{"content":[{"type":"text","text":"done"}]}`, nil
			}
			return wireTaskOf("their1", mcptask.Completed), nil
		}}, mcp.Legacy),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Timeout = timeout
			c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "scripted")
			var asked atomic.Int64
			got, err := callAsked(c, mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
				asked.Add(1)
				thought := time.NewTimer(timeout + timeout/2)
				<-thought.C
				return c.Accept(ctx, method, params)
			})
			if !strings.Contains(got, "done") || err != nil || asked.Load() != 1 {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
	}
}

// What a person has answered reaches the server though that cannot take it at first; what it
// refuses is asked again.
func TestAnswersThatServersDoNotTakeAtOnce(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for name, test := range map[string]struct {
		refusal *mcp.Error
		asked   int64
	}{
		"out of order": {mcp.Errorf(mcp.CodeInternal, "try again"), 1},
		"refused":      {mcp.Errorf(mcp.CodeInvalidParams, "the answer does not fit"), 2},
	} {
		behind := func(t *testing.T) (*gatewaytest.TaskClient, mcptask.Asker, *atomic.Int64) {
			var taken, asked atomic.Int64
			s := startHandler(t, &askingTask{take: func() *mcp.Error {
				if taken.Add(1) == 1 {
					return test.refusal
				}
				return nil
			}}, mcp.Modern)
			c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "scripted")
			return c, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
				asked.Add(1)
				return c.Accept(ctx, method, params)
			}, &asked
		}
		t.Run("of a task, "+name, func(t *testing.T) {
			c, answer, asked := behind(t)
			params := `{"taskId":"` + c.Task("tool", "{}") + `"}`
			var said *mcp.Error
			if _, err := callAsked(c, mcp.MethodTasksResult, params, answer); !errors.As(err, &said) || said.Code != test.refusal.Code {
				t.Error(err)
			}
			if got, err := callAsked(c, mcp.MethodTasksResult, params, answer); !strings.Contains(got, "done") || err != nil || asked.Load() != test.asked {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
		if test.asked > 1 {
			continue // of a call there is nothing to ask again in
		}
		t.Run("of a call, "+name, func(t *testing.T) {
			c, answer, asked := behind(t)
			if got, err := callAsked(c, mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`, answer); !strings.Contains(got, "done") || err != nil || asked.Load() != test.asked {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
	}
}

// A client that goes while it is asked leaves the question to its next tasks/result, which may wait
// already.
func TestQuestionsOfClientsThatGo(t *testing.T) {
	t.Parallel()
	g := startTaskGateway(t, Options{}, startHandler(t, &askingTask{}, mcp.Modern))
	c := g.client(mcp.Legacy, "scripted")
	id := c.Task("tool", "{}")
	c.Until(id, "input_required") // nothing changes from then on
	task, _, err := g.tasks.find(t.Context(), c.State().SessionID, id)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked, gone := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, mcp.Call{Method: mcp.MethodTasksResult, Params: json.RawMessage(`{"taskId":"` + id + `"}`), Asked: func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *mcp.Error) {
			close(asked)
			<-t.Context().Done() // it never answers
			return mcp.DefaultAnswer(method)
		}})
		gone <- err
	}()
	gatewaytest.WaitFor(t, asked)
	_, changed := task.record() // what the next one waits for
	cancel()
	if err := gatewaytest.WaitFor(t, gone); err == nil {
		t.Error("it was answered")
	}
	gatewaytest.WaitFor(t, changed)
	if text, _, err := c.Result(id); text != "done" || err != nil {
		t.Error(text, err)
	}
}
