package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/testenv"
)

var buildJobs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "evalrun-lab")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "jobs"), testenv.Build(dir, testenv.JobsServer)
})

// jobs are a job service and an MCP server whose tool starts jobs there.
type jobs struct {
	t   *testing.T
	dir string
	// url is that of the job service, mcp that of the MCP server.
	url, mcp string
	// passed is how much more time has passed for the job service than for everybody else.
	passed atomic.Int64
}

func startJobs(t *testing.T) *jobs {
	t.Helper()
	program, err := buildJobs()
	if err != nil {
		t.Fatal(err)
	}
	j := &jobs{t: t, dir: t.TempDir()}
	s, err := service.New(service.Options{Dir: j.dir, Now: func() time.Time { return time.Now().Add(time.Duration(j.passed.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	j.url = server.URL
	portFile := filepath.Join(t.TempDir(), "port")
	cmd := exec.Command(program, "server", "--service", j.url, "--listen", "127.0.0.1:0", "--port-file", portFile, "--log", j.log())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	j.mcp = "http://127.0.0.1:" + testenv.WhenWritten(t, portFile) + "/mcp"
	return j
}

func (j *jobs) log() string { return filepath.Join(j.dir, "calls.jsonl") }

// calls are the calls that the MCP server got, as their kinds.
func (j *jobs) calls() (kinds []string) {
	j.t.Helper()
	data, err := os.ReadFile(j.log())
	if err != nil {
		j.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var call struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			j.t.Fatal(err)
		}
		kinds = append(kinds, call.Kind)
	}
	return kinds
}

// started counts the jobs that were started.
func (j *jobs) started() (n int) {
	j.t.Helper()
	starts, err := service.ReadStarts(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, s := range starts {
		if s.New {
			n++
		}
	}
	return n
}

// evalSet writes an eval set with one evaluation, whose agent is given the MCP server.
func (j *jobs) evalSet(dir, prompt, expected string) (args []string) {
	j.t.Helper()
	write := func(name string, v any) {
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			j.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			j.t.Fatal(err)
		}
	}
	write("evalset.json", map[string]any{
		"version": "1.0", "id": "jobs", "name": "Jobs", "evaluatorRefs": []string{"says"},
		"evaluators":  []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}},
		"evaluations": []any{map[string]any{"id": "one", "name": "One", "inputs": map[string]any{"prompt": prompt}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": expected}}}},
		"jobs":        map[string]any{"*": map[string]any{"source": "uipath", "url": j.url, "token": "${JOBS_TOKEN}", "interval": "200ms", "maxInterval": "1s"}},
		"limits":      map[string]any{"softWait": "300ms"},
	})
	write("mcp.json", map[string]any{"mcpServers": map[string]any{"rpa": map[string]any{"type": "http", "url": j.mcp}}})
	return []string{"evalset.json", "--mcp-config", "mcp.json"}
}

// TestJobFails has a real agent start a job that fails: the agent is resumed with what was wrong.
func TestJobFails(t *testing.T) { driveJob(t, "claude", "broken", "the printer burns") }

// driveJob has a real agent call a plain tool, and one that starts a job of the uipath.com/job
// contract: the rollout is suspended on it with no process left, an executor in another process
// watches the job, and the agent is resumed with the result that was fetched. It returns how the
// session was gone on with, and what the evaluators of tool calls give for the two calls: order,
// count, arguments, output.
func driveJob(t *testing.T, name, process, want string) (session string, scores []string) {
	m, j := startModel(t), startJobs(t)
	dir := t.TempDir()
	// The job ends when the test says so, or the run might not leave before it is done. What the model
	// is to say at the end comes back with the result of the job. The escapes keep it from being read
	// at once.
	say := `\u005b\u005bSAY I am done\u005d\u005d`
	prompt := fmt.Sprintf(`The codeword is petunia. [[CALL read_record {"id":"7"}]] [[CALL run_process {"process":%q,"arguments":{"ms":3600000,"info":"the printer burns","say":"%s"}}]] [[SAY first turn over]]`, process, say)
	args := append([]string{"run", "-o", "results.json", "--agent", m.agentEntry(dir, name, nil)}, j.evalSet(dir, prompt, "I am done")...)
	j.evaluateCalls(dir, recordServer(t), process)
	evalrun(t, dir, 75, args...)

	r := results(t, dir)
	trigger := r.AgentExecutionOutput.Result.Trigger
	if r.Status != "suspended" || trigger.Type != "JOB" || r.Score != nil {
		t.Fatalf("%+v", r)
	}
	if got := fmt.Sprint(r.MCPServers); got != "[{records http sent 1 0} {rpa http sent 1 0}]" {
		t.Errorf("servers: %s", got)
	}
	nothingLeft(t, dir, r)
	before := len(m.requests())
	j.passed.Store(int64(time.Hour))

	kept, err := filepath.Glob(filepath.Join(dir, ".evalrun/runs/*/results.json"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	testenv.Eventually(func() bool {
		if r.Status == "suspended" {
			evalrun(t, dir, 0, "executor", "--once")
			r = readResults(t, kept[0])
		}
		return r.Status != "suspended"
	})
	if r.Score == nil || *r.Score != 1 {
		t.Errorf("score %v: %+v", r.Score, r)
	}
	if j.started() != 1 {
		t.Errorf("%d jobs were started", j.started())
	}
	if want := map[string]string{"invoice": "[start fetch]", "broken": "[start]"}[process]; fmt.Sprint(j.calls()) != want {
		t.Errorf("the server got %v, want %s", j.calls(), want)
	}
	history := m.requests()[before].history()
	for _, want := range []string{"petunia", "run_process", "has started a job", want} {
		if !strings.Contains(history, want) {
			t.Errorf("the model's first request after the resume lacks %q:\n%s", want, history)
		}
	}
	// The calls of both segments.
	if got := fmt.Sprint(r.MCPServers); got != "[{records http sent 1 0} {rpa http sent 1 0}]" {
		t.Errorf("servers after the resume: %s", got)
	}
	nothingLeft(t, dir, r)
	keyIsNowhere(t, dir)
	for _, e := range r.Evaluated {
		if e.Result.Score == nil {
			t.Errorf("%s has no score", e.Name)
		} else if e.Name != "says" {
			scores = append(scores, fmt.Sprintf("%s %g", e.Name, *e.Result.Score))
		}
	}
	// The same calls score the same, whatever the agent tells of them.
	if got := strings.Join(scores, ", "); got != "order 1, count 1, args 1, output 1" {
		t.Errorf("the evaluators of tool calls: %s", got)
	}
	if len(r.ResumedBy) == 1 {
		session = r.ResumedBy[0].Session
	}
	return session, scores
}

// recordServer is an MCP server with a plain tool.
func recordServer(t *testing.T) string {
	type record struct {
		ID string `json:"id"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "records", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read_record"}, func(_ context.Context, _ *mcp.CallToolRequest, r record) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "record " + r.ID}}}, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	return web.URL
}

// evaluateCalls adds the server of records and the evaluators of tool calls to what evalSet has
// written.
func (j *jobs) evaluateCalls(dir, records, process string) {
	j.t.Helper()
	change := func(name string, change func(doc map[string]any)) {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		doc := map[string]any{}
		if err == nil {
			err = json.Unmarshal(data, &doc)
		}
		if err != nil {
			j.t.Fatal(err)
		}
		change(doc)
		if data, err = json.Marshal(doc); err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			j.t.Fatal(err)
		}
	}
	change("mcp.json", func(doc map[string]any) {
		doc["mcpServers"].(map[string]any)["records"] = map[string]any{"type": "http", "url": records}
	})
	change("evalset.json", func(doc map[string]any) {
		criteria := doc["evaluations"].([]any)[0].(map[string]any)["evaluationCriterias"].(map[string]any)
		for _, e := range []struct {
			name, kind string
			criteria   map[string]any
		}{
			{"order", "uipath-tool-call-order", map[string]any{"toolCallsOrder": []string{"read_record", "run_process"}}},
			{"count", "uipath-tool-call-count", map[string]any{"toolCallsCount": map[string]any{"read_record": []any{"=", 1}, "run_process": []any{"=", 1}}}},
			{"args", "uipath-tool-call-args", map[string]any{"toolCalls": []any{map[string]any{"name": "read_record", "args": map[string]any{"id": "7"}},
				map[string]any{"name": "run_process", "args": map[string]any{"process": process}}}}},
			{"output", "uipath-tool-call-output", map[string]any{"toolOutputs": []any{map[string]any{"name": "read_record", "output": "record 7"}}}},
		} {
			config := map[string]any{"name": e.name, "strict": false}
			if e.name == "args" {
				config["subset"] = true
			}
			doc["evaluators"] = append(doc["evaluators"].([]any), map[string]any{"version": "1.0", "id": e.name, "evaluatorTypeId": e.kind, "evaluatorConfig": config})
			doc["evaluatorRefs"] = append(doc["evaluatorRefs"].([]any), e.name)
			criteria[e.name] = e.criteria
		}
	})
}

// TestTaskSuspends has a real agent call a tool that its server runs as an MCP task, of either era:
// the rollout is suspended on the task, another process watches it, in the session of the first if
// it has one, and the agent is resumed with the result.
func TestTaskSuspends(t *testing.T) {
	for _, c := range []struct{ agent, era string }{{"claude", "legacy"}, {"opencode", "modern"}} {
		t.Run(c.agent+"/"+c.era, func(t *testing.T) {
			m, state := startModel(t), t.TempDir()
			// The task is not done before its server is started again on the same folder.
			var tasks atomic.Pointer[server.Server]
			start := func(o server.Options) {
				o.Era, o.Dir = server.Era(c.era), state
				s, err := server.New(o)
				if err != nil {
					t.Fatal(err)
				}
				if before := tasks.Swap(s); before != nil {
					before.Close()
				}
			}
			start(server.Options{Never: true})
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tasks.Load().ServeHTTP(w, r) }))
			t.Cleanup(func() { tasks.Load().Close(); web.Close() })
			j := &jobs{t: t, url: "http://127.0.0.1:1/no-job-service", mcp: web.URL + "/mcp"}
			dir := t.TempDir()
			args := append([]string{"run", "--detach", "-o", "results.json", "--agent", m.agentEntry(dir, c.agent, nil)},
				j.evalSet(dir, `The codeword is petunia. [[CALL required_compute {"ms":1,"text":"\u005b\u005bSAY I am done\u005d\u005d"}]] [[SAY first turn over]]`, "I am done")...)
			evalrun(t, dir, 75, args...)
			r := results(t, dir)
			trigger := r.AgentExecutionOutput.Result.Trigger
			if r.Status != "suspended" || trigger.Type != "MCP_TASK" {
				t.Fatalf("%+v", r)
			}
			nothingLeft(t, dir, r)
			before := len(m.requests())
			start(server.Options{})
			evalrun(t, dir, 0, "resume", "--wait", "--wait-timeout", "5m", "results.json")
			r = results(t, dir)
			if r.Score == nil || *r.Score != 1 {
				t.Errorf("score %v: %+v", r.Score, r)
			}
			if history := m.requests()[before].history(); !strings.Contains(history, "petunia") || !strings.Contains(history, "has started a task") || !strings.Contains(history, "which is done now") {
				t.Errorf("the model's first request after the resume:\n%s", history)
			}
			nothingLeft(t, dir, r)
		})
	}
}

// everythingFile is the official server-everything.
func everythingFile(t *testing.T) string {
	t.Helper()
	return testenv.LabFile(t, "everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

// TestEverything has a real agent call the task-only tool of the official server-everything. Over
// stdio the task would die with us: the call is held, and the results document says so. Over HTTP
// the rollout is suspended, and another process takes over the session.
func TestEverything(t *testing.T) {
	everything := everythingFile(t)
	const prompt = `The codeword is petunia. [[CALL simulate-research-query {"topic":"tulips","ambiguous":false}]] [[SAY I am done]]`
	set := func(t *testing.T, dir string, m *model, server map[string]any) []string {
		j := &jobs{t: t, url: "http://127.0.0.1:1/no-job-service"}
		args := append([]string{"run", "--detach", "-o", "results.json", "--isolation", "process", "--agent", m.agentEntry(dir, "claude", nil)}, j.evalSet(dir, prompt, "done")...)
		data, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"everything": server}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "mcp.json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return args
	}
	t.Run("stdio", func(t *testing.T) {
		m, dir := startModel(t), t.TempDir()
		evalrun(t, dir, 0, set(t, dir, m, map[string]any{"command": node(t), "args": []string{everything, "stdio"}})...)
		r := results(t, dir)
		if r.Score == nil || *r.Score != 1 || len(r.MCPServers) != 1 || r.MCPServers[0].Held != 1 {
			t.Errorf("%+v", r)
		}
		seen := m.requests()
		if history := seen[len(seen)-1].history(); !strings.Contains(history, "# Research Report: tulips") {
			t.Error(history)
		}
		nothingLeft(t, dir, r)
	})
	t.Run("http", func(t *testing.T) {
		m, dir := startModel(t), t.TempDir()
		url := startEverything(t)
		evalrun(t, dir, 75, set(t, dir, m, map[string]any{"type": "http", "url": url})...)
		r := results(t, dir)
		if r.Status != "suspended" || r.AgentExecutionOutput.Result.Trigger.Type != "MCP_TASK" {
			t.Fatalf("%+v", r)
		}
		nothingLeft(t, dir, r)
		before := len(m.requests())
		evalrun(t, dir, 0, "resume", "--wait", "--wait-timeout", "5m", "results.json")
		if r = results(t, dir); r.Score == nil || *r.Score != 1 {
			t.Errorf("%+v", r)
		}
		if history := m.requests()[before].history(); !strings.Contains(history, "petunia") || !strings.Contains(history, "# Research Report: tulips") {
			t.Error(history)
		}
	})
}

// startEverything starts server-everything over HTTP, and returns its URL.
func startEverything(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it does not say which port it has taken, so it is given one
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(node(t), everythingFile(t), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if !testenv.Eventually(func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}) {
		t.Fatal("server-everything does not listen")
	}
	return "http://" + address + "/mcp"
}
