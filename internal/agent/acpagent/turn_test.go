package acpagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// labServer is an MCP server with a tool that adds.
func labServer(t *testing.T) acp.MCPServer {
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "lab", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, n numbers) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("sum ", n.A+n.B)}}}, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	return acp.MCPServer{Name: "lab", Transport: acp.TransportHTTP, URL: web.URL}
}

func TestATurn(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	seg := r.segment(`[[SAY I add.]] [[CALL lab.add {"a":2,"b":40}]] [[UPDATE {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}]]
		[[SAY The answer]] [[SAY  is 42.]]`)
	seg.Servers = []acp.MCPServer{labServer(t)}
	out := r.run(seg)
	if string(out.Output) != `{"content":"The answeris 42.","stopReason":"end_turn"}` {
		t.Errorf("got %s", out.Output)
	}
	info := out.Info
	if info.ToolCalls != 1 || len(info.MCPServers) != 1 || info.MCPServers[0].Verdict != record.VerdictSent || info.MCPServers[0].Calls != 1 || info.StopReason != "end_turn" ||
		info.AgentName != "acp-agent" || info.AgentVersion != "1.0.0" || info.ResumedBy != "" || !strings.Contains(string(info.AgentUsage), `"used":10`) {
		t.Errorf("got %+v, %s", info, info.AgentUsage)
	}
	var kinds []string
	for _, e := range testenv.ReadLines[record.Event](t, seg.Dir, record.FileTrajectory) {
		kinds = append(kinds, e.Type)
	}
	want := []string{record.EventSession, record.EventPrompt, record.EventMessage, record.EventToolCall, record.EventMessage, record.EventThought, record.EventMessage, record.EventUsage, record.EventStop}
	if !slices.Equal(kinds, want) {
		t.Errorf("got  %v\nwant %v", kinds, want)
	}
	call := r.events(0, record.EventToolCall)[0].Call
	if call.Name != "add" || call.Server != "lab" || call.Status != "completed" || string(call.Input) != `{"a":2,"b":40}` || call.Text() != "sum 42" || call.DurationMs == nil {
		t.Errorf("got %+v", call)
	}
	spans, skipped, err := record.ReadTrace(seg.Dir)
	if len(spans) != 1 || skipped != 0 || err != nil || !strings.Contains(string(spans[0]), `"mcp.server":"lab"`) || !strings.Contains(string(spans[0]), `"content":"sum 42"`) {
		t.Errorf("got %s, %d, %v", spans, skipped, err)
	}
	if want := []string{FileSession, record.FileTrajectory, record.FileTrace, FileWire}; !slices.Equal(out.Files, want) {
		t.Errorf("got the files %v, want %v", out.Files, want)
	}
}

func TestWhatIsUnknownIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	content(t, r.prompt(`[[FAULT unknown-update]] [[UPDATE {"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":""}}]] [[SAY x]]`))
	updates := r.events(0, record.EventUpdate)
	if len(updates) != 2 || !strings.Contains(string(updates[0].Data), `"minutes":5`) || !strings.Contains(string(updates[1].Data), `"image"`) {
		t.Errorf("got %v", updates)
	}
}

func TestACallThatNeverEndsIsRecordedOnce(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	out := r.prompt(`[[UPDATE {"sessionUpdate":"tool_call","toolCallId":"t","title":"slow","rawInput":{"n":1}}]] [[UPDATE {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress"}]]`)
	calls := r.events(0, record.EventToolCall)
	if len(calls) != 1 || calls[0].Call.Status != "in_progress" || calls[0].Call.DurationMs != nil || out.Info.ToolCalls != 1 {
		t.Errorf("got %+v, %+v", calls, out.Info)
	}
}

func TestATurnThatReachesALimitIsCancelledFirst(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	r := newRollout(t)
	proxy, seen := model(t, http.StatusOK, nil)
	r.useModel(proxy)
	seg := r.segment("[[RUN " + askFixture(t) + "]] [[SAY on my way]] [[WAIT]]")
	seg.Timeout = 2 * time.Second
	out := r.run(seg)
	mustLimit(t, out, fault.Timeout)
	var doc struct {
		Content, StopReason string
		Limit               *fault.Fault
	}
	if err := json.Unmarshal(out.Output, &doc); err != nil || doc.StopReason != "cancelled" || !strings.HasSuffix(doc.Content, "on my way") || doc.Limit.Category != fault.Timeout {
		t.Errorf("got %s, %v", out.Output, err)
	}
	if len(r.sent(0, "client", `"session/cancel"`)) != 1 {
		t.Error("there was no session/cancel")
	}
	if m := out.Info.Model; m == nil || m.Main.Calls != 1 || m.Main.InputTokens != 7 || seen.count() != 1 || out.Info.Limit == nil {
		t.Errorf("got %+v", out.Info)
	}
	if n := len(testenv.ReadLines[modelproxy.Call](t, seg.Dir, FileModel)); n != 1 {
		t.Errorf("%d calls were kept", n)
	}
}

func TestAModelThatFailsIsTheFault(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	proxy, _ := model(t, http.StatusInternalServerError, nil)
	r.useModel(proxy)
	out := r.prompt("[[RUN " + askFixture(t) + "]] [[SAY all is well]]")
	mustFault(t, out, fault.Model, "500")
	if out.Info.Model.Main.Errors["500"] != 1 {
		t.Errorf("got %+v", out.Info.Model)
	}
}

// stoppedClock goes on only when it is told to, and counts who looks at it.
type stoppedClock struct {
	mu    sync.Mutex
	now   time.Time
	looks int
}

func (c *stoppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return c.now
}

// advance returns how often it was looked at before.
func (c *stoppedClock) advance(d time.Duration) (looks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.looks
}

func (c *stoppedClock) looked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// What is no idleness: in each of these turns nothing is heard for an hour, by the clock that counts (Y4).
func TestIdleness(t *testing.T) {
	testenv.NeedSlow(t)
	const begin, blocked = "echo >started; read x <gate", "[[RUN echo >started; read x <gate]]"
	for name, tt := range map[string]struct {
		prompt string
		model  bool
		thinks bool
		want   fault.Category
		change func(r *rollout)
	}{
		"nothing happens": {prompt: blocked, want: fault.Idle},
		// What was answered after an update shows that this was read.
		"a tool runs": {prompt: `[[UPDATE {"sessionUpdate":"tool_call","toolCallId":"t","title":"slow","status":"pending"}]] [[ASK other x]]` + blocked +
			`[[UPDATE {"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed"}]]`},
		"a tool has ended": {prompt: `[[UPDATE {"sessionUpdate":"tool_call","toolCallId":"t","title":"quick","status":"completed"}]]` + blocked, want: fault.Idle},
		// A23: so are terminals, and requests.
		"a terminal runs": {prompt: `[[REQUEST terminal/create {"command":"sh","args":["-c","` + begin + `"]}]] [[REQUEST terminal/wait_for_exit {"terminalId":"term-1"}]]`,
			change: func(r *rollout) { SettingsOf(r.entry).Terminal = true }},
		"a terminal has ended": {prompt: `[[REQUEST terminal/create {"command":"true"}]] [[REQUEST terminal/wait_for_exit {"terminalId":"term-1"}]]` + blocked, want: fault.Idle,
			change: func(r *rollout) { SettingsOf(r.entry).Terminal = true }},
		"a model thinks":      {prompt: "[[RUN " + askFixture(t) + "]]", model: true, thinks: true},
		"a model has thought": {prompt: "[[RUN " + askFixture(t) + "]]" + blocked, model: true, want: fault.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			clock := &stoppedClock{now: time.Now()}
			r.opts.Now = clock.Now
			SettingsOf(r.entry).IdleTimeout = wait.Duration(20 * time.Millisecond) // how often the timer looks at the clock, too
			if tt.change != nil {
				tt.change(r)
			}
			started, gate, answer := filepath.Join(r.cwd, "started"), filepath.Join(r.cwd, "gate"), make(chan struct{})
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			open, err := os.OpenFile(gate, os.O_RDWR, 0) // which waits for no reader
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			if tt.model {
				proxy, _ := model(t, http.StatusOK, func() {
					if tt.thinks {
						_ = os.WriteFile(started, nil, 0o600)
						<-answer
					}
				})
				r.useModel(proxy)
			}
			driven, ended := make(chan struct{}), make(chan struct{})
			over := func() bool {
				select {
				case <-ended:
					return true
				default:
					return false
				}
			}
			go func() {
				defer close(driven)
				defer close(answer)
				if !testenv.Eventually(func() bool { _, err := os.Stat(started); return err == nil || over() }) {
					t.Error("the turn did not come so far")
				}
				if tt.want != "" {
					// What came before may count as activity a moment longer, so the clock moves until the turn is over.
					if !testenv.Eventually(func() bool { clock.advance(time.Hour); return over() }) {
						t.Error("the turn did not end")
						_, _ = open.WriteString("\n")
					}
					return
				}
				before := clock.advance(time.Hour)
				// The second look comes when the first has had its effect.
				if !testenv.Eventually(func() bool { return clock.looked() >= before+2 || over() }) {
					t.Error("the timer did not look at the clock")
				}
				if !tt.thinks {
					_, _ = open.WriteString("\n")
				}
			}()
			out := r.prompt(tt.prompt)
			close(ended)
			<-driven
			if tt.want != "" {
				mustLimit(t, out, tt.want)
			} else if out.Output == nil || out.Limit != nil {
				t.Errorf("got %+v, %v", out, out.Limit)
			}
		})
	}
}

// A26: what an agent says of a session that nobody has opened is not said in this one, and what it
// asks there is refused.
func TestAForeignSession(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	got := content(t, r.prompt("[[FAULT foreign]]"))
	if want := `session/request_permission {"error":{"code":-32002,"message":"there is no session \"another\""}}`; got != want || r.events(0, record.EventPermission) != nil {
		t.Errorf("got %s", got)
	}
}

// A model that has just answered is not silent, although nobody was told when it did.
func TestIdlenessCountsFromTheEndOfAModelCall(t *testing.T) {
	t.Parallel()
	proxy, _ := model(t, http.StatusOK, nil)
	session, err := proxy.Open(modelproxy.Upstream{API: "openai", URL: proxy.url})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, session.URL()+"/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
	req.Header.Set("Authorization", "Bearer "+session.Token())
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	if !testenv.Eventually(func() bool { return len(session.Calls()) == 1 && !session.Busy() }) {
		t.Fatalf("got the calls %+v", session.Calls())
	}
	call := session.Calls()[0]
	end := call.Time.Add(time.Duration(call.LatencyMs) * time.Millisecond)

	clock := &stoppedClock{now: end.Add(-2 * time.Hour)} // when the prompt was sent
	idle := &idleTimer{limit: time.Hour, now: clock.Now, calls: newCallRecorder(clock.Now, toolNames{}, nil), model: session, limits: newLimits()}
	idle.reset()
	defer idle.start()()
	clock.advance(3*time.Hour - time.Second)
	if idle.check(); len(idle.limits.reached) != 0 {
		t.Error("it was idle for less than an hour")
	}
	clock.advance(time.Second)
	if idle.check(); len(idle.limits.reached) != 1 {
		t.Error("it was idle for an hour")
	}
}

// providerKey is the real key.
const providerKey = "sk-the-real-key-of-the-provider"

// requests are the keys with which a provider was asked.
type requests struct{ keys chan string }

func (r *requests) count() int { return len(r.keys) }

// provider is a model's, and the proxy before it.
type provider struct {
	*modelproxy.Proxy
	url string
}

// model is a provider that thinks and then answers with a status.
func model(t *testing.T, status int, think func()) (provider, *requests) {
	t.Helper()
	seen := &requests{make(chan string, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen.keys <- req.Header.Get("Authorization")
		if think != nil {
			think()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, `{"choices":[{"finish_reason":"stop","message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`)
	}))
	t.Cleanup(server.Close)
	proxy, err := modelproxy.New(modelproxy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return provider{proxy, server.URL}, seen
}

// useModel gives the agent a model, of which the entry knows the key as a variable.
func (r *rollout) useModel(p provider) {
	r.entry.Model = &agent.Model{API: "openai", URL: p.url, Key: "${PROVIDER_KEY}", Name: "small-1"}
	r.opts.Models = p.Proxy
	r.opts.Resolve = func(name string) (string, bool) { return providerKey, name == "PROVIDER_KEY" }
	r.setenv("MODEL_URL", "{modelURL}")
	r.setenv("MODEL_KEY", "{modelKey}")
	r.setenv("MODEL_NAME", "{model}")
}

// askFixture is the shell command by which the agent asks its model.
func askFixture(t *testing.T) string {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "GORACE=atexit_sleep_ms=0 " + executable + ` ask-model "$MODEL_KEY"` // with -race it would end a second later
}
