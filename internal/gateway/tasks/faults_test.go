package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
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

// Every pair of eras, over HTTP and stdio: results, tools that fail, errors, questions and
// cancelling. The ids of servers never reach a client.
func TestTasksBetweenEras(t *testing.T) {
	t.Parallel()
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, stdio := range []bool{false, true} {
				t.Run(fmt.Sprintf("a %s client of a %s server, stdio %v", downstream, upstream, stdio), func(t *testing.T) {
					t.Parallel()
					f, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: upstream})
					if stdio {
						s = gatewaytest.OverPipes(taskserver.Options{Era: upstream, Log: f, Poll: 50 * time.Millisecond})
					}
					g := startTaskGateway(t, Options{}, s)
					c := g.client(downstream, "tasks")
					for _, test := range []struct {
						tool, arguments, text, err string
						isError                    bool
					}{
						{tool: "compute", arguments: `{"ms":60,"text":"done"}`, text: "done"},
						{tool: "failing_job", arguments: `{}`, text: "the job failed", isError: true},
						{tool: "protocol_error_job", arguments: `{}`, err: "the job broke down"},
						{tool: "confirm_delete", arguments: `{"filename":"f"}`, text: "f was deleted"},
						{tool: "multi_input", arguments: `{}`, text: `first {"action":"accept"`},
					} {
						text, isError, err := c.Result(c.Task(test.tool, test.arguments))
						if !strings.HasPrefix(text, test.text) || isError != test.isError || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
							t.Errorf("%s: %q, %v, %v", test.tool, text, isError, err)
						}
					}
					id := c.Task("compute", `{"ms":60000}`)
					c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
					c.Until(id, "cancelled")
					gatewaytest.Eventually(t, "the server was not told", func() bool { return f.Asked("tasks/cancel", "") == 1 })
					for _, theirs := range f.TaskIDs() {
						if c.Seen.Has(theirs) {
							t.Errorf("the client has seen the server's id %s", theirs)
						}
					}
				})
			}
		}
	}
}

func TestTaskPages(t *testing.T) {
	t.Parallel()
	_, _, c := plainBehind(t, Options{}, mcp.Legacy)
	var want []string
	for range 101 {
		want = append(want, c.Task("quick", "{}"))
	}
	var got []string
	params := "{}"
	for pages := 1; ; pages++ {
		page := c.Must(mcp.MethodTasksList, "%s", params)
		var tasks []struct{ TaskID string }
		if err := json.Unmarshal(page.Get("tasks"), &tasks); err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			got = append(got, task.TaskID)
		}
		if !page.Has("nextCursor") {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		params = fmt.Sprintf(`{"cursor":%s}`, page.Get("nextCursor"))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d tasks, expected %d in order", len(got), len(want))
	}
	for _, cursor := range []string{"!", "zz", "1", "", "1-00000000"} { // G6
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksList, `{"cursor":%q}`, cursor)
	}
}

// Servers that misbehave.
func TestTasksOfServersThatMisbehave(t *testing.T) {
	t.Parallel()
	for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		serve := func(t *testing.T, o taskserver.Options) *gatewaytest.TaskClient {
			o.Era = era
			_, s := gatewaytest.StartTaskFixture(t, o)
			return startTaskGateway(t, Options{}, s).client(mcp.Era(era), "tasks")
		}

		t.Run(string(era)+"/one id for two tasks", func(t *testing.T) {
			t.Parallel()
			_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: era, SameTaskID: true})
			g := startTaskGateway(t, Options{}, s)
			c := g.client(mcp.Era(era), "tasks")
			first := c.Task("compute", `{"ms":2000,"text":"first"}`)
			running := g.tasks.index.byID(first)
			c.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":10,"text":"second"},"task":{}}`)
			if _, _, err := c.Result(first); err == nil || !strings.Contains(err.Error(), "one task id") {
				t.Error(err)
			}
			gatewaytest.WaitFor(t, running.gone) // it is cancelled at its server, and the id is free
			if text, _, err := c.Result(c.Task("compute", `{"ms":10,"text":"third"}`)); text != "third" {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/a TTL that is a lie", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TTLLie: true})
			if _, _, err := c.Result(c.Task("compute", `{"ms":20000}`)); err == nil || !strings.Contains(err.Error(), "has forgotten the task") {
				t.Error(err)
			}
			if text, _, err := c.Result(c.Task("compute", `{"ms":100,"text":"in time"}`)); text != "in time" || err != nil {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/the status before the result", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TerminalBeforeResult: true})
			id := c.Task("compute", `{"ms":50,"text":"late"}`)
			if text, _, err := c.Result(id); text != "late" || err != nil {
				t.Error(text, err)
			}
			if text, isError, err := c.Result(c.Task("failing_job", `{}`)); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
		})

		t.Run(string(era)+"/a server that dies", func(t *testing.T) {
			t.Parallel()
			s := gatewaytest.OverPipes(taskserver.Options{Era: era, Poll: 50 * time.Millisecond})
			start := s.Target.Start
			var process io.ReadWriteCloser
			s.Target.Start = func(ctx context.Context) (_ io.ReadWriteCloser, err error) {
				process, err = start(ctx)
				return process, err
			}
			g := startTaskGateway(t, Options{}, s)
			c := g.client(mcp.Era(era), "tasks")
			id := c.Task("compute", `{"ms":60000}`)
			if err := process.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := c.Result(id); err == nil || !strings.Contains(err.Error(), "connection") {
				t.Error(err)
			}
			if text, _, err := c.Result(c.Task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
				t.Error(text, err)
			}
		})
	}

	t.Run("a server that refuses calls without a task by a result", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy, RequiredIsToolError: true})
		g := startTaskGateway(t, Options{}, s)
		c := g.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Legacy, Capabilities: json.RawMessage(`{}`)})
		o := c.Must(mcp.MethodToolsCall, `{"name":"required_compute","arguments":{"ms":10,"text":"x"}}`)
		if o.Has("isError") && string(o.Get("isError")) != "false" || !o.Has("content") || o.Object("_meta").Has(mcp.MetaRelatedTask) {
			t.Error(string(o.JSON()))
		}
	})

	// G6
	t.Run("a status that there is not", func(t *testing.T) {
		server := startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
			if method == mcp.MethodToolsCall {
				return `{"task":` + wireTaskOf("their1", "dancing") + `}`, nil
			}
			return wireTaskOf(params.Text("taskId"), "dancing"), nil
		})
		c := startTaskGateway(t, Options{}, server).client(mcp.Legacy, "scripted")
		if _, _, err := c.Result(c.Task("tool", `{}`)); err == nil || !strings.Contains(err.Error(), `the task is "dancing"`) {
			t.Error(err)
		}
		if text := textForAgent(t, server, "tool"); !strings.Contains(text, `the task is "dancing"`) {
			t.Error(text)
		}
	})

	t.Run("a task that is asked for where there can be none", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "tasks")
		c.Refused(mcp.CodeMethodNotFound, mcp.MethodToolsCall, `{"name":"echo","arguments":{},"task":{}}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":-1}}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":3}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":3}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{}`)
	})

	t.Run("a time to live that is too long", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "tasks")
		o := c.Must(mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":1e300}}`).Object("task")
		if got := string(o.Get("ttl")); got != "7200000" {
			t.Error(got)
		}
	})

	t.Run("the time to live ends a task that runs", func(t *testing.T) {
		p, s := gatewaytest.StartPlainServer(t)
		g := startTaskGateway(t, Options{Cleanup: 20 * time.Millisecond}, s)
		c := g.client(mcp.Legacy, "plain")
		id := c.Must(mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{"ttl":100}}`).Object("task").Text("taskId")
		gatewaytest.WaitFor(t, p.Began)
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
		c.Note(id, "cancelled")
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
	})
}

type taskStore = store.MCPTasks

// forgetting is a store that takes so long that the list of tools changes meanwhile.
type forgetting struct {
	taskStore
	forget func()
}

func (f forgetting) AddMCPTask(ctx context.Context, t store.MCPTask, limits store.MCPTaskLimits) (store.MCPTask, error) {
	f.forget()
	return f.taskStore.AddMCPTask(ctx, t, limits)
}

func TestRequiredToolIsCalledAsATaskThoughTheListChanges(t *testing.T) {
	t.Parallel()
	_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	g := startTaskGateway(t, Options{}, s)
	g.tasks.o.Store = forgetting{g.store, g.access.Endpoint("tasks").Tools().Forget}
	c := g.client(mcp.Legacy, "tasks")
	if text, _, err := c.Result(c.Task("required_compute", `{"ms":10,"text":"x"}`)); text != "x" || err != nil {
		t.Error(text, err)
	}
}

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
	t.Parallel()
	const plain, asTask = `{"name":"tool","arguments":{}}`, `{"name":"tool","arguments":{},"task":{}}`
	for _, params := range []string{plain, asTask} {
		t.Run("the call "+params, func(t *testing.T) {
			t.Parallel()
			s, _ := startSilent(t, mcp.MethodToolsCall)
			s.Timeout = 100 * time.Millisecond
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
		s.Timeout = 100 * time.Millisecond
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "scripted")
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, asTask) // of a tool that nobody knows
		if n := len(began); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})

	t.Run("a call whose time to live is over", func(t *testing.T) {
		t.Parallel()
		s, _ := startSilent(t, mcp.MethodToolsCall)
		g := startTaskGateway(t, Options{MaxTTL: 100 * time.Millisecond, Cleanup: 20 * time.Millisecond}, s)
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
		g := startTaskGateway(t, Options{MaxTTL: 100 * time.Millisecond}, s)
		if e := g.client(mcp.Legacy, "scripted").Refused(mcp.CodeInternal, mcp.MethodToolsCall, plain); !strings.Contains(e.Message, "within 100ms") {
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
