package acpagent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// TestMain lets the test binary be the init of a sandbox, and a program that asks a model.
func TestMain(m *testing.M) {
	agent.Register(Type)
	sandbox.InitMain()
	if len(os.Args) >= 3 && os.Args[1] == "ask-model" {
		askModel(os.Args[2], append(os.Args[3:], `{"model":"m","tools":[{}]}`)[0])
		return
	}
	code := m.Run()
	testenv.RemoveAgent()
	os.Exit(code)
}

// askModel calls the model that the environment names, as an agent with a model would, and prints
// the status.
func askModel(key, body string) {
	path := "/v1/chat/completions"
	if strings.Contains(body, `"input"`) {
		path = "/v1/responses"
	}
	req, err := http.NewRequest(http.MethodPost, os.Getenv("MODEL_URL")+path, strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	fmt.Println(resp.Status)
}

// rollout is what the segments of one rollout have in common.
type rollout struct {
	t       *testing.T
	dir     string
	entry   agent.Entry
	opts    agent.Options
	bounds  bounds
	sandbox sandbox.Config
	home    string // of this machine
	cwd     string
	history []string
	number  int
	servers []acp.MCPServer // of every segment, behind opts.Gateway
}

// newRollout makes a rollout of the fixture agent in process isolation. The arguments are its
// flags.
func newRollout(t *testing.T, flags ...string) *rollout {
	t.Helper()
	e := entryOf(t, map[string]any{"type": "acp", "command": append([]string{testenv.BuiltAgent(t)}, flags...)})
	r := &rollout{t: t, dir: t.TempDir(), entry: e, bounds: defaultBounds, sandbox: sandbox.Config{Isolation: sandbox.IsolationProcess}}
	r.opts = agent.Options{Grace: 300 * time.Millisecond, Version: "test"}
	r.bounds.cancel = 2 * time.Second
	r.home, r.cwd = testenv.Mkdir(t, r.dir, "home"), testenv.Mkdir(t, r.dir, "workspace")
	r.sandbox.Binds = []sandbox.Bind{{Host: r.home, Inside: "/home/agent", Writable: true}, {Host: r.cwd, Inside: "/app", Writable: true}}
	return r
}

func entryOf(t *testing.T, doc map[string]any) agent.Entry {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	n, err := input.Parse("set.json", text)
	if err != nil {
		t.Fatal(err)
	}
	reader := &input.Reader{}
	e := agent.ParseEntry(reader, n)
	if len(reader.Problems) > 0 {
		t.Fatal(reader.Problems)
	}
	return e
}

// inBwrap moves the rollout into bubblewrap.
func (r *rollout) inBwrap() {
	r.t.Helper()
	testenv.Need(r.t, testenv.Bwrap, sandbox.Available())
	r.sandbox.Isolation = sandbox.IsolationBwrap
}

// setenv sets a variable of the entry.
func (r *rollout) setenv(name, value string) {
	env := map[string]string{}
	maps.Copy(env, r.entry.Env)
	env[name] = value
	r.entry.Env = env
}

// marker is of this process alone: what bears it is killed, and the same test may run elsewhere on this machine.
func (r *rollout) marker() string {
	return fmt.Sprintf("acp-test-%d-%s-%s", os.Getpid(), filepath.Base(r.dir), r.t.Name())
}

// segment is the next segment.
func (r *rollout) segment(prompt string) agent.Segment {
	r.t.Helper()
	r.number++
	executable, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "evalrun-") // the path of a socket is short
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	seg := agent.Segment{
		RolloutID: "r", Marker: r.marker(), Number: r.number, Attempt: 1, Workspace: r.cwd, Dir: testenv.Mkdir(r.t, r.dir, fmt.Sprint("segment-", r.number)), BaseDir: r.dir,
		Sandbox: &agent.Sandbox{Config: r.sandbox, Home: r.sandbox.Path("/home/agent"), Cwd: r.sandbox.Path("/app"), Sockets: sockets, Executable: executable},
		Prompt:  prompt, History: r.history, Servers: r.servers,
	}
	if r.servers != nil {
		seg.Gateway = &agent.Gateway{Ledger: noLedger{}}
	}
	return seg
}

// run runs a segment and makes sure that nothing of it is left running.
func (r *rollout) run(seg agent.Segment) agent.Outcome {
	r.t.Helper()
	a := newACPAgent(r.entry, r.opts)
	a.bounds = r.bounds
	var out agent.Outcome
	var err error
	pprof.Do(r.t.Context(), pprof.Labels("segment", seg.Dir), func(ctx context.Context) { out, err = a.Run(ctx, seg) })
	if err != nil {
		r.t.Fatal(err)
	}
	if set := b2i(out.Output != nil) + b2i(out.Interrupts != nil) + b2i(out.Fault != nil); set != 1 || out.Limit != nil && out.Output == nil {
		r.t.Fatalf("expected one of output, interrupts and fault, got %+v", out)
	}
	r.history = append(r.history, seg.Dir)
	if n, err := sandbox.Sweep(seg.Marker); n != 0 || err != nil {
		r.t.Errorf("%d processes were left, %v", n, err)
	}
	r.noGoroutine(seg.Dir)
	return out
}

func (r *rollout) prompt(prompt string) agent.Outcome {
	r.t.Helper()
	return r.run(r.segment(prompt))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// noGoroutine waits until no goroutine is left that a segment has started.
func (r *rollout) noGoroutine(segment string) {
	r.t.Helper()
	label := fmt.Sprintf("%q:%q", "segment", segment)
	left := ""
	if !testenv.Eventually(func() bool {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			r.t.Fatal(err)
		}
		left = ""
		for _, group := range strings.Split(all.String(), "\n\n") {
			if strings.Contains(group, label) && !strings.Contains(group, "net/http.(*persistConn)") { // those are the model proxy's
				left += group + "\n\n"
			}
		}
		return left == ""
	}) {
		r.t.Errorf("goroutines were left:\n%s", left)
	}
}

// content is what the agent said last.
func content(t *testing.T, out agent.Outcome) string {
	t.Helper()
	var doc struct {
		Content string `json:"content"`
	}
	if out.Output == nil {
		t.Fatalf("expected an output, got %+v", out)
	}
	if err := json.Unmarshal(out.Output, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content
}

func mustFault(t *testing.T, out agent.Outcome, want fault.Category, text string) {
	t.Helper()
	if out.Fault == nil || out.Fault.Category != want || !strings.Contains(out.Fault.Message, text) {
		t.Errorf("expected the fault %s with %q, got %+v %v", want, text, out, out.Fault)
	}
}

func mustLimit(t *testing.T, out agent.Outcome, want fault.Category) {
	t.Helper()
	if out.Limit == nil || out.Limit.Category != want {
		t.Errorf("expected the limit %s, got %+v %v", want, out, out.Fault)
	}
}

func (r *rollout) events(segment int, kinds ...string) (found []record.Event) {
	r.t.Helper()
	for _, e := range testenv.ReadLines[record.Event](r.t, r.history[segment], record.FileTrajectory) {
		for _, kind := range kinds {
			if e.Type == kind {
				found = append(found, e)
			}
		}
	}
	return found
}

// sent are the lines of the connection with a text, and the side they are of.
func (r *rollout) sent(segment int, from, text string) (found []string) {
	r.t.Helper()
	for _, l := range testenv.ReadLines[wireLine](r.t, r.history[segment], FileWire) {
		if l.From == from && strings.Contains(l.Line, text) {
			found = append(found, l.Line)
		}
	}
	return found
}
