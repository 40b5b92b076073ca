package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// scripted is a legacy server with one tool, which says what a test wants.
type scripted func(method string, params jsonobj.Object) (string, *mcp.Error)

func startScripted(t *testing.T, s scripted) gateway.Server {
	t.Helper()
	return startHandler(t, s, mcp.Legacy)
}

func startHandler(t *testing.T, handler mcp.Handler, era mcp.Era) gateway.Server {
	t.Helper()
	x := mcp.NewHTTPHandler(handler, mcp.ServerOptions{})
	h := httptest.NewServer(x)
	t.Cleanup(func() { x.Close(); h.Close() })
	return gateway.Server{Name: "scripted", Protocol: era, Target: mcp.Target{URL: h.URL}}
}

func (s scripted) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodInitialize:
		return json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"tools":[{"name":"tool","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`), nil
	}
	params, _ := jsonobj.ParseObject(r.Params)
	result, err := s(r.Method, params)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(result), nil
}

func (s scripted) Notified(*mcp.Session, string, json.RawMessage) {}
func (s scripted) Closed(*mcp.Session)                            {}

// wireTaskOf is a task of a scripted server.
func wireTaskOf(id, status string) string {
	return fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"pollInterval":10}`, id, status)
}

// working is a scripted server whose tasks never end. What it is asked goes through heard.
func working(heard func(method string)) scripted {
	var tasks atomic.Int64
	return func(method string, params jsonobj.Object) (string, *mcp.Error) {
		heard(method)
		if method == mcp.MethodToolsCall {
			return `{"task":` + wireTaskOf(fmt.Sprint("their", tasks.Add(1)), mcptask.Working) + `}`, nil
		}
		return wireTaskOf(params.Text("taskId"), mcptask.Working), nil
	}
}

// askingTask is a modern server whose tool needs a task, which asks one question and is done when
// it has taken the answer.
type askingTask struct {
	take func() *mcp.Error // of an answer
	look func()            // of every tasks/get
	done atomic.Bool
}

func (s *askingTask) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	const task = `{"resultType":"%s","taskId":"their1","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":null,"pollIntervalMs":10,"status":`
	switch r.Method {
	case mcp.MethodDiscover:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"tool","inputSchema":{"type":"object"}}]}`), nil
	case mcp.MethodToolsCall:
		if !taskwire.Declares(mcp.MetaOf(r.Params).Object(mcp.MetaClientCapabilities)) {
			return nil, taskwire.Undeclared()
		}
		return json.RawMessage(fmt.Sprintf(task, "task") + `"working"}`), nil
	case mcp.MethodTasksUpdate:
		if s.take != nil {
			if err := s.take(); err != nil {
				return nil, err
			}
		}
		s.done.Store(true)
	case mcp.MethodTasksGet:
		if s.look != nil {
			s.look()
		}
		if s.done.Load() {
			return json.RawMessage(fmt.Sprintf(task, "complete") + `"completed","result":{"content":[{"type":"text","text":"done"}]}}`), nil
		}
		return json.RawMessage(fmt.Sprintf(task, "complete") + `"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}}}}`), nil
	}
	return json.RawMessage(`{"resultType":"complete"}`), nil
}

func (s *askingTask) Notified(*mcp.Session, string, json.RawMessage) {}
func (s *askingTask) Closed(*mcp.Session)                            {}

// callAsked is Try with somebody of its own who answers.
func callAsked(c *gatewaytest.TaskClient, method, params string, answer mcptask.Asker) (string, error) {
	ctx, cancel := context.WithTimeout(c.T.Context(), gatewaytest.TaskLimit)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params), Asked: answer})
	return string(result), err
}
