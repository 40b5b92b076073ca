package gateway

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

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// scripted is a legacy server with one tool, which says what a test wants.
type scripted func(method string, params jsonobj.Object) (string, *mcp.Error)

func startScripted(t *testing.T, s scripted) Server {
	t.Helper()
	return startHandler(t, s, mcp.Legacy)
}

func startHandler(t *testing.T, handler mcp.Handler, era mcp.Era) Server {
	t.Helper()
	x := mcp.NewHTTPHandler(handler, mcp.ServerOptions{})
	h := httptest.NewServer(x)
	t.Cleanup(func() { x.Close(); h.Close() })
	return Server{Name: "scripted", Protocol: era, Target: mcp.Target{URL: h.URL}}
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
			return `{"task":` + wireTaskOf(fmt.Sprint("their", tasks.Add(1)), TaskWorking) + `}`, nil
		}
		return wireTaskOf(params.Text("taskId"), TaskWorking), nil
	}
}

// askingTask is a modern server whose tool needs a task, which asks one question and is done when it has taken the answer.
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
		if !hasTasks(metaOf(r.Params).Object(mcp.MetaClientCapabilities)) {
			return nil, missingTasks()
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

// callAsked is try with somebody of its own who answers.
func (c *taskClient) callAsked(method, params string, answer Asker) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), taskLimit)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params), Asked: answer})
	return string(result), err
}

// Every pair of eras, over HTTP and stdio: results, tools that fail, errors, questions and cancelling. The ids of servers never reach a client.
func TestTasksBetweenEras(t *testing.T) {
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, stdio := range []bool{false, true} {
				t.Run(fmt.Sprintf("a %s client of a %s server, stdio %v", downstream, upstream, stdio), func(t *testing.T) {
					t.Parallel()
					f, s := startTaskFixture(t, taskserver.Options{Era: upstream})
					if stdio {
						s = overPipes(taskserver.Options{Era: upstream, Log: f, Poll: 50 * time.Millisecond})
					}
					g := startTaskGateway(t, TaskOptions{}, s)
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
						text, isError, err := c.result(c.task(test.tool, test.arguments))
						if !strings.HasPrefix(text, test.text) || isError != test.isError || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
							t.Errorf("%s: %q, %v, %v", test.tool, text, isError, err)
						}
					}
					id := c.task("compute", `{"ms":60000}`)
					c.must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
					c.until(id, "cancelled")
					eventually(t, "the server was not told", func() bool { return f.asked("tasks/cancel", "") == 1 })
					for _, theirs := range f.taskIDs() {
						if c.seen.has(theirs) {
							t.Errorf("the client has seen the server's id %s", theirs)
						}
					}
				})
			}
		}
	}
}

func TestTaskPages(t *testing.T) {
	_, _, c := plainBehind(t, TaskOptions{}, mcp.Legacy)
	var want []string
	for range 101 {
		want = append(want, c.task("quick", "{}"))
	}
	var got []string
	params := "{}"
	for pages := 1; ; pages++ {
		page := c.must(mcp.MethodTasksList, "%s", params)
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
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksList, `{"cursor":%q}`, cursor)
	}
}

// Servers that misbehave.
func TestTasksOfServersThatMisbehave(t *testing.T) {
	for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		serve := func(t *testing.T, o taskserver.Options) *taskClient {
			o.Era = era
			_, s := startTaskFixture(t, o)
			return startTaskGateway(t, TaskOptions{}, s).client(mcp.Era(era), "tasks")
		}

		t.Run(string(era)+"/one id for two tasks", func(t *testing.T) {
			t.Parallel()
			_, s := startTaskFixture(t, taskserver.Options{Era: era, SameTaskID: true})
			g := startTaskGateway(t, TaskOptions{}, s)
			c := g.client(mcp.Era(era), "tasks")
			first := c.task("compute", `{"ms":2000,"text":"first"}`)
			g.tasks.mu.Lock()
			running := g.tasks.active[first]
			g.tasks.mu.Unlock()
			c.refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":10,"text":"second"},"task":{}}`)
			if _, _, err := c.result(first); err == nil || !strings.Contains(err.Error(), "one task id") {
				t.Error(err)
			}
			waitFor(t, running.gone) // it is cancelled at its server, and the id is free
			if text, _, err := c.result(c.task("compute", `{"ms":10,"text":"third"}`)); text != "third" {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/a TTL that is a lie", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TTLLie: true})
			if _, _, err := c.result(c.task("compute", `{"ms":20000}`)); err == nil || !strings.Contains(err.Error(), "has forgotten the task") {
				t.Error(err)
			}
			if text, _, err := c.result(c.task("compute", `{"ms":100,"text":"in time"}`)); text != "in time" || err != nil {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/the status before the result", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TerminalBeforeResult: true})
			id := c.task("compute", `{"ms":50,"text":"late"}`)
			if text, _, err := c.result(id); text != "late" || err != nil {
				t.Error(text, err)
			}
			if text, isError, err := c.result(c.task("failing_job", `{}`)); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
		})

		t.Run(string(era)+"/a server that dies", func(t *testing.T) {
			t.Parallel()
			s := overPipes(taskserver.Options{Era: era, Poll: 50 * time.Millisecond})
			start := s.Target.Start
			var process io.ReadWriteCloser
			s.Target.Start = func(ctx context.Context) (_ io.ReadWriteCloser, err error) {
				process, err = start(ctx)
				return process, err
			}
			g := startTaskGateway(t, TaskOptions{}, s)
			c := g.client(mcp.Era(era), "tasks")
			id := c.task("compute", `{"ms":60000}`)
			if err := process.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := c.result(id); err == nil || !strings.Contains(err.Error(), "connection") {
				t.Error(err)
			}
			if text, _, err := c.result(c.task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
				t.Error(text, err)
			}
		})
	}

	t.Run("a server that refuses calls without a task by a result", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy, RequiredIsToolError: true})
		g := startTaskGateway(t, TaskOptions{}, s)
		c := g.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Legacy, Capabilities: json.RawMessage(`{}`)})
		o := c.must(mcp.MethodToolsCall, `{"name":"required_compute","arguments":{"ms":10,"text":"x"}}`)
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
		c := startTaskGateway(t, TaskOptions{}, server).client(mcp.Legacy, "scripted")
		if _, _, err := c.result(c.task("tool", `{}`)); err == nil || !strings.Contains(err.Error(), `the task is "dancing"`) {
			t.Error(err)
		}
		if text := behind(t, server, &memory{}, nil).text("tool", `{}`); !strings.Contains(text, `the task is "dancing"`) {
			t.Error(text)
		}
	})

	t.Run("a task that is asked for where there can be none", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "tasks")
		c.refused(mcp.CodeMethodNotFound, mcp.MethodToolsCall, `{"name":"echo","arguments":{},"task":{}}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":-1}}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":3}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":3}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{}`)
	})

	t.Run("a time to live that is too long", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "tasks")
		o := c.must(mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":1e300}}`).Object("task")
		if got := string(o.Get("ttl")); got != "7200000" {
			t.Error(got)
		}
	})

	t.Run("the time to live ends a task that runs", func(t *testing.T) {
		p, s := startPlainServer(t)
		g := startTaskGateway(t, TaskOptions{Cleanup: 20 * time.Millisecond}, s)
		c := g.client(mcp.Legacy, "plain")
		id := c.must(mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{"ttl":100}}`).Object("task").Text("taskId")
		waitFor(t, p.began)
		_ = waitFor(t, p.ended) // it is what a cancelled call ends with
		c.note(id, "cancelled")
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
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
	_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	g := startTaskGateway(t, TaskOptions{}, s)
	g.tasks.o.Store = forgetting{g.store, g.access.Endpoint("tasks").forgetTools}
	c := g.client(mcp.Legacy, "tasks")
	if text, _, err := c.result(c.task("required_compute", `{"ms":10,"text":"x"}`)); text != "x" || err != nil {
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
	const timeout = time.Second
	for name, s := range map[string]Server{
		"a modern task asks": startHandler(t, &askingTask{}, mcp.Modern),
		"a legacy call asks": startHandler(t, slowServer{func(method string, _ jsonobj.Object) (string, *mcp.Error) {
			switch method {
			case mcp.MethodToolsCall:
				return `{"task":` + wireTaskOf("their1", TaskWorking) + `}`, nil
			case mcp.MethodTasksResult:
				return `{"content":[{"type":"text","text":"done"}]}`, nil
			}
			return wireTaskOf("their1", TaskCompleted), nil
		}}, mcp.Legacy),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Timeout = timeout
			c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "scripted")
			var asked atomic.Int64
			got, err := c.callAsked(mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
				asked.Add(1)
				thought := time.NewTimer(timeout + timeout/2)
				<-thought.C
				return c.accept(ctx, method, params)
			})
			if !strings.Contains(got, "done") || err != nil || asked.Load() != 1 {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
	}
}

// What a person has answered reaches the server though that cannot take it at first; what it refuses is asked again.
func TestAnswersThatServersDoNotTakeAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		refusal *mcp.Error
		asked   int64
	}{
		"out of order": {mcp.Errorf(mcp.CodeInternal, "try again"), 1},
		"refused":      {mcp.Errorf(mcp.CodeInvalidParams, "the answer does not fit"), 2},
	} {
		behind := func(t *testing.T) (*taskClient, Asker, *atomic.Int64) {
			var taken, asked atomic.Int64
			s := startHandler(t, &askingTask{take: func() *mcp.Error {
				if taken.Add(1) == 1 {
					return test.refusal
				}
				return nil
			}}, mcp.Modern)
			c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "scripted")
			return c, func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
				asked.Add(1)
				return c.accept(ctx, method, params)
			}, &asked
		}
		t.Run("of a task, "+name, func(t *testing.T) {
			c, answer, asked := behind(t)
			params := `{"taskId":"` + c.task("tool", "{}") + `"}`
			var said *mcp.Error
			if _, err := c.callAsked(mcp.MethodTasksResult, params, answer); !errors.As(err, &said) || said.Code != test.refusal.Code {
				t.Error(err)
			}
			if got, err := c.callAsked(mcp.MethodTasksResult, params, answer); !strings.Contains(got, "done") || err != nil || asked.Load() != test.asked {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
		if test.asked > 1 {
			continue // of a call there is nothing to ask again in
		}
		t.Run("of a call, "+name, func(t *testing.T) {
			c, answer, asked := behind(t)
			if got, err := c.callAsked(mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`, answer); !strings.Contains(got, "done") || err != nil || asked.Load() != test.asked {
				t.Errorf("%s, %v, asked %d times", got, err, asked.Load())
			}
		})
	}
}

// A client that goes while it is asked leaves the question to its next tasks/result, which may wait already.
func TestQuestionsOfClientsThatGo(t *testing.T) {
	g := startTaskGateway(t, TaskOptions{}, startHandler(t, &askingTask{}, mcp.Modern))
	c := g.client(mcp.Legacy, "scripted")
	id := c.task("tool", "{}")
	c.until(id, "input_required") // nothing changes from then on
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
			return alone(method)
		}})
		gone <- err
	}()
	waitFor(t, asked)
	_, changed := task.record() // what the next one waits for
	cancel()
	if err := waitFor(t, gone); err == nil {
		t.Error("it was answered")
	}
	waitFor(t, changed)
	if text, _, err := c.result(id); text != "done" || err != nil {
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

func startSilent(t *testing.T, to string) (Server, <-chan string) {
	t.Helper()
	s := silent{working(func(string) {}), to, make(chan string, 100)}
	return startHandler(t, s, mcp.Legacy), s.began
}

// Nobody waits for ever for a server that does not answer.
func TestServersThatDoNotAnswer(t *testing.T) {
	const plain, asTask = `{"name":"tool","arguments":{}}`, `{"name":"tool","arguments":{},"task":{}}`
	for _, params := range []string{plain, asTask} {
		t.Run("the call "+params, func(t *testing.T) {
			t.Parallel()
			s, _ := startSilent(t, mcp.MethodToolsCall)
			s.Timeout = 100 * time.Millisecond
			g := startTaskGateway(t, TaskOptions{}, s)
			if e := g.client(mcp.Legacy, "scripted").refused(mcp.CodeInternal, mcp.MethodToolsCall, "%s", params); !strings.Contains(e.Message, errTimeout.Error()) {
				t.Error(e)
			}
			eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
		})
	}

	t.Run("the list of tools", func(t *testing.T) {
		t.Parallel()
		s, began := startSilent(t, mcp.MethodToolsList)
		s.Timeout = 100 * time.Millisecond
		c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "scripted")
		c.refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, asTask) // of a tool that nobody knows
		if n := len(began); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
	})

	t.Run("a call whose time to live is over", func(t *testing.T) {
		t.Parallel()
		s, _ := startSilent(t, mcp.MethodToolsCall)
		g := startTaskGateway(t, TaskOptions{MaxTTL: 100 * time.Millisecond, Cleanup: 20 * time.Millisecond}, s)
		g.client(mcp.Legacy, "scripted").refused(mcp.CodeInternal, mcp.MethodToolsCall, asTask)
		eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
	})

	t.Run("a task of a client that does not know tasks", func(t *testing.T) {
		t.Parallel()
		cancelled := make(chan string, 100)
		s := startScripted(t, working(func(method string) {
			if method == mcp.MethodTasksCancel {
				cancelled <- method
			}
		}))
		g := startTaskGateway(t, TaskOptions{MaxTTL: 100 * time.Millisecond}, s)
		if e := g.client(mcp.Legacy, "scripted").refused(mcp.CodeInternal, mcp.MethodToolsCall, plain); !strings.Contains(e.Message, "within 100ms") {
			t.Error(e)
		}
		waitFor(t, cancelled)
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
	})
}

// What another task has taken out of the store is not followed any more, and its server is told.
func TestExpiredTasksThatMadeRoom(t *testing.T) {
	var looks atomic.Int64
	cancelled := make(chan string, 100)
	g := startTaskGateway(t, TaskOptions{Cleanup: time.Hour}, startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
		id := params.Text("taskId")
		switch method {
		case mcp.MethodToolsCall:
			return `{"task":` + wireTaskOf(params.Object("arguments").Text("id"), TaskWorking) + `}`, nil
		case mcp.MethodTasksCancel:
			cancelled <- id
		}
		news, _ := jsonobj.ParseObject(json.RawMessage(wireTaskOf(id, TaskWorking)))
		return string(news.Set("statusMessage", jsonobj.Quote(fmt.Sprint(looks.Add(1)))).JSON()), nil
	}))
	c := g.client(mcp.Legacy, "scripted")
	first := c.must(mcp.MethodToolsCall, `{"name":"tool","arguments":{"id":"first"},"task":{"ttl":50}}`).Object("task").Text("taskId")
	eventually(t, "the task is not forgotten", func() bool {
		_, err := c.try(mcp.MethodTasksGet, fmt.Sprintf(`{"taskId":%q}`, first))
		return err != nil
	})
	c.task("tool", `{"id":"second"}`)
	if id := waitFor(t, cancelled); id != "first" {
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
	var looks atomic.Int64
	g := startTaskGateway(t, TaskOptions{}, startScripted(t, working(func(method string) {
		if method == mcp.MethodTasksGet {
			looks.Add(1)
		}
	})))
	w := &writes{taskStore: g.store}
	g.tasks.o.Store = w
	c := g.client(mcp.Legacy, "scripted")
	id := c.task("tool", "{}")
	more := func(n int64) {
		until := looks.Load() + n
		eventually(t, "the server is not asked", func() bool { return looks.Load() >= until })
	}
	more(2) // what the first one tells is new
	before, n := c.get(id), w.n.Load()
	more(3)
	if after := c.get(id); string(after.JSON()) != string(before.JSON()) {
		t.Errorf("it was %s, it is %s", before.JSON(), after.JSON())
	}
	if now := w.n.Load(); now != n {
		t.Errorf("%d writes", now-n)
	}
}
