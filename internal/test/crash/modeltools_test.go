package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/fixtures/mcp/jobs/service"
	"github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// toolSteps are the durable steps of a conversation with commands and tools of MCP servers, with how often
// each is reached.
var toolSteps = []struct {
	name  string
	times int
}{
	{"model.begins", 1}, {"model.answered", 13}, {"model.answerStored", 13}, {"model.intended", 15}, {"call.begun", 8},
	{"call.answered", 4}, {"call.started", 4}, {"model.ran", 13}, {"model.waits", 2}, {"model.suspends", 2},
	{"model.arrived", 2}, {"model.resultStored", 15}, {"call.ended", 8}, {"rollout.filesSynced", 3},
}

// toolTurns are the calls of the model, by its answers. Both jobs of more than a moment suspend the
// rollout.
var toolTurns = [][]toolCall{
	{{"bash", `{"command":"echo 0 >>ran"}`}},
	{{"dedup__run_process", `{"process":"invoice","arguments":{"n":1,"ms":2000}}`}, {"bash", `{"command":"echo 1 >>ran"}`}, {"hello__greet", `{"name":"Ada"}`}},
	{{"dedup__run_process", `{"process":"invoice","arguments":{"n":2,"ms":1}}`}},
	{{"bash", `{"command":"echo 2 >>ran"}`}},
	{{"plain__run_process", `{"process":"invoice","arguments":{"n":3,"ms":2000}}`}},
	{{"hello__greet", `{"name":"Bob"}`}, {"bash", `{"command":"echo 3 >>ran"}`}},
	{{"hello__greet", `{"name":"Cid"}`}},
	{{"bash", `{"command":"echo 4 >>ran"}`}},
	{{"dedup__run_process", `{"process":"invoice","arguments":{"n":4,"ms":1}}`}},
	{{"hello__greet", `{"name":"Dan"}`}},
	{{"bash", `{"command":"echo 5 >>ran"}`}},
	{{"bash", `{"command":"cat ran"}`}},
}

type toolCall struct{ name, arguments string }

// unsure are the calls of which nobody can tell after a kill what they have done.
var unsure = []string{"bash", "hello__greet", "plain__run_process"}

// A model that runs commands and calls tools of MCP servers in twelve turns is killed at its steps. Its
// conversation goes on there: each request begins with the ones before byte for byte, each call has one
// result, and nothing is run, called or started twice. Only what was cut off, and might do something a
// second time, has an error as its result.
//
// EVALRUN_MODEL_KILLS says how often it is killed: first once at each step, then at every occurrence.
func TestAModelKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	kills, places := 7, []string{sandbox.IsolationProcess}
	if os.Getenv(testenv.Long) != "" {
		kills, places = 42, isolations()
	}
	kills = number(t, "EVALRUN_MODEL_KILLS", kills)
	for pass := range places {
		for round := 0; kills > 0 && round < 15; round++ {
			for at, step := range toolSteps {
				if round >= step.times || kills == 0 {
					continue
				}
				kills--
				isolation := places[(at+round+pass)%len(places)]
				n := 1 + (at*3+round*11)%step.times // no number of times has the factor 11
				t.Run(fmt.Sprintf("%s %s %d", isolation, step.name, n), func(t *testing.T) {
					t.Parallel()
					killModelWithTools(t, isolation, step.name, n)
				})
			}
		}
	}
}

// toolBench is a rollout of a model with tools, and everything that it talks to.
type toolBench struct {
	*scenario
	model   *toolModel
	jobsDir string
	heard   logBuffer
	// later is what the clock of the jobs is ahead.
	later atomic.Int64
}

func newToolBench(t *testing.T, isolation string, turns [][]toolCall) *toolBench {
	b := &toolBench{scenario: emptyScenario(t, "failpoint"), model: &toolModel{turns: turns}, jobsDir: t.TempDir()}
	jobs, err := service.New(service.Options{Dir: b.jobsDir,
		Now: func() time.Time { return time.Now().Add(time.Duration(b.later.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	jobServer := httptest.NewServer(jobs)
	t.Cleanup(jobServer.Close)
	greeter, err := server.New(server.Options{Log: &b.heard, Era: "both"})
	if err != nil {
		t.Fatal(err)
	}
	hello := httptest.NewServer(greeter)
	t.Cleanup(hello.Close)
	t.Cleanup(greeter.Close)
	modelServer := httptest.NewServer(b.model)
	t.Cleanup(modelServer.Close)
	b.write("mcp.json", map[string]any{"mcpServers": map[string]any{
		"dedup": map[string]any{"type": "http", "url": startCalledServer(t, jobServer.URL)},
		"plain": map[string]any{"type": "http", "url": startCalledServer(t, jobServer.URL, "--no-idempotency")},
		"hello": map[string]any{"type": "http", "url": hello.URL},
	}})
	b.total, b.flags = 1, []string{"--isolation", isolation, "--mcp-config", "mcp.json"}
	b.write("set.json", map[string]any{"version": "1.0", "id": "model", "name": "Model",
		"agent":       map[string]any{"type": "model", "name": "m", "tools": []string{"bash", "mcp"}, "model": map[string]any{"url": modelServer.URL, "name": "m1"}},
		"evaluations": []any{map[string]any{"id": "a", "name": "A", "inputs": map[string]any{"prompt": "Work."}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "done"}}}},
		"jobs":        map[string]any{"*": map[string]any{"source": "uipath", "url": jobServer.URL, "token": "${JOBS_TOKEN}", "interval": "50ms", "maxInterval": "100ms"}},
		"limits":      map[string]any{"softWait": "500ms"},
		"evaluators":  []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	return b
}

// completed makes sure that the rollout is.
func (b *toolBench) completed() {
	b.t.Helper()
	st := b.open()
	defer st.Close()
	if err := st.Snapshot(b.t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			if r.State != "completed" || r.Score == nil || *r.Score != 1 {
				b.t.Errorf("%s %v %v", r.State, r.Score, r.Fault)
			}
			return nil
		})
	}); err != nil {
		b.t.Fatal(err)
	}
}

// started counts the jobs that were started.
func (b *toolBench) started() (n int) {
	b.t.Helper()
	starts, err := service.ReadStarts(b.jobsDir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, one := range starts {
		if one.IdempotencyKey == "" || one.New {
			n++
		}
	}
	return n
}

func killModelWithTools(t *testing.T, isolation, step string, n int) {
	b := newToolBench(t, isolation, toolTurns)
	if !b.killed(b.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:%s:%d", step, n))) {
		t.Fatalf("there was no step %s %d", step, n)
	}
	b.finish()
	b.completed()
	b.model.check(t, step)
	if n := b.started(); n > 4 || n < 4 && !b.model.unsureOf("plain__run_process") {
		t.Errorf("%d jobs were started by 4 calls", n)
	}
	for _, name := range []string{"Ada", "Bob", "Cid", "Dan"} {
		if n := b.heard.calls(name); n > 1 || n < 1 && !b.model.unsureOf("hello__greet") {
			t.Errorf("%s was greeted %d times", name, n)
		}
	}
}

// A job takes a day, by the clock of the service that has it. evalrun is killed, and meanwhile the rollout is
// its store alone: the files of the run and the state of the machine are gone. Elsewhere the conversation goes on
// with the bytes of its last request, and with the files that its commands have written.
func TestAModelGoesOnElsewhereAfterADay(t *testing.T) {
	testenv.NeedSlow(t)
	b := newToolBench(t, sandbox.IsolationProcess, [][]toolCall{
		{{"bash", `{"command":"echo before >>ran"}`}},
		{{"plain__run_process", `{"process":"invoice","arguments":{"ms":86400000}}`}, {"bash", `{"command":"echo beside >>ran"}`}},
		{{"bash", `{"command":"cat ran"}`}},
	})
	const inStore = "EVALRUN_PORTABLE=1"
	if !b.killed(b.command(inStore, "EVALRUN_FAILPOINT=kill:rollout.segmentCommitted:1")) {
		t.Fatal("the rollout was not suspended")
	}
	elsewhere := t.TempDir()
	kept, err := filepath.Glob(filepath.Join(b.dir, ".evalrun", "store.db*"))
	err = errors.Join(err, os.Mkdir(filepath.Join(elsewhere, ".evalrun"), 0o700))
	for _, from := range append(kept, filepath.Join(b.dir, "set.json"), filepath.Join(b.dir, "mcp.json")) {
		err = errors.Join(err, os.Rename(from, filepath.Join(elsewhere, strings.TrimPrefix(from, b.dir))))
	}
	if err = errors.Join(err, os.RemoveAll(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.dir = elsewhere
	b.later.Store(int64(24 * time.Hour))
	b.finish(inStore)
	b.completed()
	b.model.checkPrefixes(t)
	got := b.model.results()
	if n := b.started(); n != 1 || len(b.model.requests) != 4 || !strings.Contains(got["c1.0"], "INV-") || got["c2.0"] != "before\nbeside" {
		t.Errorf("%d jobs, %d requests: %q", n, len(b.model.requests), got)
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

// toolModel is a model that makes the calls of its turns, and then says that it is done.
type toolModel struct {
	turns    [][]toolCall
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
	if turn < len(m.turns) {
		var calls []any
		for i, c := range m.turns[turn] {
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
	for turn, calls := range m.turns {
		for i, c := range calls {
			if c.name == tool && isUnsure(got[fmt.Sprintf("c%d.%d", turn, i)]) {
				return true
			}
		}
	}
	return false
}

// checkPrefixes makes sure that each request begins with the one before, byte for byte.
func (m *toolModel) checkPrefixes(t *testing.T) {
	t.Helper()
	for i := 1; i < len(m.requests); i++ {
		before, after := m.requests[i-1], m.requests[i]
		if len(before) > len(after) || !cmp.Equal(before, after[:len(before)]) || m.tools[i] != m.tools[0] {
			t.Errorf("request %d does not begin with the one before", i)
		}
	}
}

// check makes sure that nothing is lost of a conversation that was killed at a step, and nothing done twice.
func (m *toolModel) check(t *testing.T, step string) {
	t.Helper()
	again := 0
	if step == "model.answered" {
		again = 1 // its answer was lost
	}
	if want := len(m.turns) + 1 + again; len(m.requests) != want {
		t.Fatalf("%d requests, want %d", len(m.requests), want)
	}
	m.checkPrefixes(t)
	got, cut := m.results(), 0
	for turn, calls := range m.turns {
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
	// The last command has printed which of the others were run, and never twice. One that was cut off is among
	// them if it had run.
	var want []string
	for turn, calls := range m.turns[:len(m.turns)-1] {
		for i, c := range calls {
			if command := strings.Fields(c.arguments); c.name == "bash" && (step == "model.ran" || !isUnsure(got[fmt.Sprintf("c%d.%d", turn, i)])) {
				want = append(want, command[1])
			}
		}
	}
	if last := got[fmt.Sprintf("c%d.0", len(m.turns)-1)]; !isUnsure(last) && !slices.Equal(strings.Fields(last), want) {
		t.Errorf("the commands %q ran, want %q", last, want)
	}
}
