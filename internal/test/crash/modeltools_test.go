package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// toolSteps are the durable steps of a conversation with tools of MCP servers, with how often each is
// reached.
var toolSteps = []struct {
	name  string
	times int
}{
	{"model.begins", 1}, {"model.answered", 6}, {"model.answerStored", 6}, {"model.intended", 7}, {"call.begun", 5},
	{"call.answered", 3}, {"call.started", 3}, {"model.ran", 5}, {"model.waits", 2}, {"model.suspends", 2},
	{"model.arrived", 2}, {"model.resultStored", 7}, {"call.ended", 5}, {"rollout.filesSynced", 3},
}

// toolTurns are the calls of the model, by its answers. Both jobs of more than a moment suspend the
// rollout.
var toolTurns = [][]toolCall{
	{{"bash", `{"command":"echo 0 >>ran"}`}},
	{{"dedup__run_process", `{"process":"invoice","arguments":{"n":1,"ms":2000}}`}, {"bash", `{"command":"echo 1 >>ran"}`}, {"hello__greet", `{"name":"Ada"}`}},
	{{"dedup__run_process", `{"process":"invoice","arguments":{"n":2,"ms":1}}`}},
	{{"plain__run_process", `{"process":"invoice","arguments":{"n":3,"ms":2000}}`}},
	{{"hello__greet", `{"name":"Bob"}`}},
}

type toolCall struct{ name, arguments string }

// unsure are the calls of which nobody can tell after a kill what they have done.
var unsure = []string{"bash", "hello__greet", "plain__run_process"}

// A model that calls tools of MCP servers is killed at each of its steps. Its conversation goes on
// there: each request begins with the ones before byte for byte, each call has one result, and nothing
// is called or started twice. Only a call that was cut off, and might do something a second time, has
// an error as its result.
func TestAModelWithServersKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	long := os.Getenv(testenv.Long) != ""
	for at, step := range toolSteps {
		for n := 1; n <= step.times; n++ {
			if !long && (at%3 != 0 || n != 1+at%step.times) {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", step.name, n), func(t *testing.T) {
				t.Parallel()
				killModelWithServers(t, step.name, n)
			})
		}
	}
}

func killModelWithServers(t *testing.T, step string, n int) {
	s := emptyScenario(t, "failpoint")
	jobsDir := t.TempDir()
	jobs, err := service.New(service.Options{Dir: jobsDir})
	if err != nil {
		t.Fatal(err)
	}
	jobServer := httptest.NewServer(jobs)
	t.Cleanup(jobServer.Close)
	var heard logBuffer
	greeter, err := server.New(server.Options{Log: &heard, Era: "both"})
	if err != nil {
		t.Fatal(err)
	}
	hello := httptest.NewServer(greeter)
	t.Cleanup(hello.Close)
	t.Cleanup(greeter.Close)
	m := &toolModel{}
	modelServer := httptest.NewServer(m)
	t.Cleanup(modelServer.Close)
	s.write("mcp.json", map[string]any{"mcpServers": map[string]any{
		"dedup": map[string]any{"type": "http", "url": startCalledServer(t, jobServer.URL)},
		"plain": map[string]any{"type": "http", "url": startCalledServer(t, jobServer.URL, "--no-idempotency")},
		"hello": map[string]any{"type": "http", "url": hello.URL},
	}})
	s.total, s.flags = 1, []string{"--isolation", sandbox.IsolationProcess, "--mcp-config", "mcp.json"}
	s.write("set.json", map[string]any{"version": "1.0", "id": "model", "name": "Model",
		"agent":       map[string]any{"type": "model", "name": "m", "tools": []string{"bash", "mcp"}, "model": map[string]any{"url": modelServer.URL, "name": "m1"}},
		"evaluations": []any{map[string]any{"id": "a", "name": "A", "inputs": map[string]any{"prompt": "Work."}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "done"}}}},
		"jobs":        map[string]any{"*": map[string]any{"source": "uipath", "url": jobServer.URL, "token": "${JOBS_TOKEN}", "interval": "50ms", "maxInterval": "100ms"}},
		"limits":      map[string]any{"softWait": "500ms"},
		"evaluators":  []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:%s:%d", step, n))) {
		t.Fatalf("there was no step %s %d", step, n)
	}
	s.finish()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Snapshot(t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			if r.State != "completed" || r.Score == nil || *r.Score != 1 {
				t.Errorf("%s %v %v", r.State, r.Score, r.Fault)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	m.check(t, step)

	starts, err := service.ReadStarts(jobsDir)
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	for _, one := range starts {
		if one.IdempotencyKey == "" || one.New {
			started++
		}
	}
	if started > 3 || started < 3 && !m.unsureOf("plain__run_process") {
		t.Errorf("%d jobs were started by 3 calls", started)
	}
	for _, name := range []string{"Ada", "Bob"} {
		if n := heard.calls(name); n > 1 || n < 1 && !m.unsureOf("hello__greet") {
			t.Errorf("%s was greeted %d times", name, n)
		}
	}
}

// logBuffer keeps the log of a server.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// calls counts the calls of tools with a name among their arguments.
func (l *logBuffer) calls(name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, `"tools/call"`) && strings.Contains(line, name) {
			n++
		}
	}
	return n
}

// toolModel is a model that makes the calls of toolTurns, and then says what it has got.
type toolModel struct {
	mu       sync.Mutex
	requests [][]json.RawMessage // the messages
	tools    []string
}

// ServeHTTP implements http.Handler.
func (m *toolModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []json.RawMessage
		Tools    json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.requests, m.tools = append(m.requests, in.Messages), append(m.tools, string(in.Tools))
	m.mu.Unlock()
	turn := 0
	for _, raw := range in.Messages {
		if bytes.Contains(raw, []byte(`"tool_calls"`)) {
			turn++
		}
	}
	message := map[string]any{"role": "assistant", "content": "done"}
	if turn < len(toolTurns) {
		var calls []any
		for i, c := range toolTurns[turn] {
			calls = append(calls, map[string]any{"id": fmt.Sprintf("c%d.%d", turn, i), "type": "function", "function": map[string]string{"name": c.name, "arguments": c.arguments}})
		}
		message = map[string]any{"role": "assistant", "tool_calls": calls}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": message}}}) // a client that was killed has gone
}

// results are the results in the last request, by the calls.
func (m *toolModel) results() map[string]string {
	out := map[string]string{}
	for _, raw := range m.requests[len(m.requests)-1] {
		var in struct {
			ID      string `json:"tool_call_id"`
			Content string
		}
		if json.Unmarshal(raw, &in) == nil && in.ID != "" {
			out[in.ID] = in.Content
		}
	}
	return out
}

// isUnsure reports whether a result says that a call was cut off.
func isUnsure(text string) bool {
	return strings.Contains(text, "may have run") || strings.Contains(text, "nobody can tell")
}

// unsureOf reports whether a call of a tool was cut off.
func (m *toolModel) unsureOf(tool string) bool {
	got := m.results()
	for turn, calls := range toolTurns {
		for i, c := range calls {
			if c.name == tool && isUnsure(got[fmt.Sprintf("c%d.%d", turn, i)]) {
				return true
			}
		}
	}
	return false
}

func (m *toolModel) check(t *testing.T, step string) {
	t.Helper()
	again := 0
	if step == "model.answered" {
		again = 1 // its answer was lost
	}
	if want := len(toolTurns) + 1 + again; len(m.requests) != want {
		t.Fatalf("%d requests, want %d", len(m.requests), want)
	}
	for i := 1; i < len(m.requests); i++ {
		before, after := m.requests[i-1], m.requests[i]
		if len(before) > len(after) || !cmp.Equal(before, after[:len(before)]) || m.tools[i] != m.tools[0] {
			t.Errorf("request %d does not begin with the one before", i)
		}
	}
	got, cut := m.results(), 0
	for turn, calls := range toolTurns {
		for i, c := range calls {
			text, ok := got[fmt.Sprintf("c%d.%d", turn, i)]
			switch {
			case !ok:
				t.Errorf("%s %s has no result", c.name, c.arguments)
			case isUnsure(text):
				if cut++; !slices.Contains(unsure, c.name) {
					t.Errorf("%s: %s", c.name, text)
				}
			case strings.HasSuffix(c.name, "run_process") && !strings.Contains(text, "INV-"), strings.HasSuffix(c.name, "greet") && !strings.Contains(text, "Hello, "):
				t.Errorf("%s: %s", c.name, text)
			}
		}
	}
	if cut > 1 || cut == 1 && !slices.Contains([]string{"model.intended", "call.begun", "call.answered", "model.ran"}, step) {
		t.Errorf("%d calls were cut off: %v", cut, got)
	}
}
