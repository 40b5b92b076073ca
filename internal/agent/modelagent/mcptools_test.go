package modelagent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// book is a ledger in memory.
type book struct {
	mu    sync.Mutex
	calls []*booked
}

type booked struct {
	key   suspend.CallKey
	work  *wait.Work
	ended bool
}

// Begin implements suspend.Ledger.
func (b *book) Begin(_ context.Context, key suspend.CallKey) (suspend.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range b.calls {
		if c.key == key && !c.ended {
			return suspend.Entry{ID: fmt.Sprint(i), Work: c.work}, nil
		}
	}
	b.calls = append(b.calls, &booked{key: key})
	return suspend.Entry{ID: fmt.Sprint(len(b.calls) - 1), New: true}, nil
}

func (b *book) find(id string) *booked {
	var i int
	_, _ = fmt.Sscan(id, &i) // Begin has made it
	return b.calls[i]
}

// Started implements suspend.Ledger.
func (b *book) Started(_ context.Context, w *wait.Work) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	copied := *w
	b.find(w.CallID).work = &copied
	return nil
}

// Work implements suspend.Ledger.
func (b *book) Work(_ context.Context, id string) (*wait.Work, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(id).work, nil
}

// Ended implements suspend.Ledger.
func (b *book) Ended(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.find(id).ended = true
	return nil
}

// open counts the calls that have not ended.
func (b *book) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		if !c.ended {
			n++
		}
	}
	return n
}

// toolBench is a rollout with one MCP server, whose log is heard.
type toolBench struct {
	*bench
	gateway *gateway.Gateway
	book    *book
	mu      sync.Mutex
	heard   bytes.Buffer
}

// Write implements io.Writer.
func (b *toolBench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.heard.Write(p)
}

// made counts the calls of a tool that the server has heard.
func (b *toolBench) made(tool string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.heard.String()) {
		if strings.Contains(line, `"tools/call"`) && strings.Contains(line, `"tool":"`+tool+`"`) {
			n++
		}
	}
	return n
}

func newToolBench(t *testing.T) *toolBench {
	t.Helper()
	b := &toolBench{bench: newBench(t), book: &book{}}
	o := server.Options{Log: b, Era: "both", TTL: time.Hour, Poll: 50 * time.Millisecond}
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	t.Cleanup(s.Close)
	if b.gateway, err = gateway.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.gateway.Close() })
	b.seg.Servers = []acp.MCPServer{{Name: "my server", Transport: acp.TransportHTTP, URL: h.URL}}
	b.seg.Gateway = &agent.Gateway{Ledger: b.book, SoftWait: 50 * time.Millisecond}
	return b
}

// next begins the next segment, with what has arrived.
func (b *toolBench) next(deliveries map[string]agent.Delivery) {
	b.seg.History = append(b.seg.History, b.seg.Dir)
	b.seg.Number++
	b.attempt, b.seg.Deliveries, b.dir = 0, deliveries, b.TempDir()
}

// segment runs the next attempt of the segment.
func (b *toolBench) segment(ctx context.Context, url, more string) agent.Outcome {
	b.Helper()
	b.with.Gateway = b.gateway
	return b.run(ctx, model.APIChat, url, `, "tools": ["bash", "mcp"]`+more, "Work.")
}

func delivered(payload string) agent.Delivery {
	return agent.Delivery{TriggerID: "t", Status: "successful", Payload: json.RawMessage(payload)}
}

// The tools of a server are offered under names that all providers take, and called by its own.
func TestToolsOfServers(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "my_server__echo", `{"text":"`+testKey+` hello"}`, "bash", `{"command":"echo second"}`, "my_server__echo", `[]`, "my_server__gone", `{}`,
		"my_server__greet", ``), good)
	b := newToolBench(t)
	out := b.segment(t.Context(), url, "")
	if out.Fault != nil || string(out.Output) != `{"content":"fine"}` || len(*bodies) != 2 {
		t.Fatalf("%s, %v, %d requests", out.Output, out.Fault, len(*bodies))
	}
	for _, want := range []string{`"name":"my_server__echo"`, `"content":"[redacted:MODEL_KEY] hello"`, `"content":"second"`, `the arguments are no JSON object`, `there is no tool \"my_server__gone\"`, `"content":"Hello, `} {
		if !strings.Contains((*bodies)[1], want) {
			t.Errorf("no %s in %s", want, (*bodies)[1])
		}
	}
	if strings.Contains((*bodies)[0], testKey) || b.made("echo") != 1 || b.book.open() != 0 {
		t.Errorf("%d calls of echo, %d open", b.made("echo"), b.book.open())
	}
	if v := out.Info.MCPServers; len(v) != 1 || v[0].Calls != 2 {
		t.Errorf("%+v", v)
	}
}

// Several calls of one answer that take long wait together. What arrives comes at the place of each,
// and what is not there yet is waited for again, under the same id.
func TestCallsThatTakeLongSuspend(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "my_server__required_compute", `{"ms":3600000,"text":"a"}`, "bash", `{"command":"echo between"}`,
		"my_server__required_compute", `{"ms":3600000,"text":"b"}`, "my_server__required_compute", `{"ms":3600000,"text":"a"}`), good)
	b := newToolBench(t)
	out := b.segment(t.Context(), url, "")
	if out.Fault != nil || len(out.Interrupts) != 2 || out.Interrupts[0].ID != "call-0" || out.Interrupts[1].ID != "call-1" || len(*bodies) != 1 {
		t.Fatalf("%+v, %v, %d requests", out.Interrupts, out.Fault, len(*bodies))
	}
	if again := b.segment(t.Context(), url, ""); len(again.Interrupts) != 2 || len(*bodies) != 1 || b.made("required_compute") != 2 {
		t.Fatalf("the attempt after a kill: %+v, %d requests", again, len(*bodies))
	}
	done, err := (&wait.WorkResult{Result: suspend.TextResult("result of b", false)}).Payload()
	if err != nil {
		t.Fatal(err)
	}
	b.next(map[string]agent.Delivery{"call-1": delivered(string(done))})
	if out = b.segment(t.Context(), url, ""); len(out.Interrupts) != 1 || out.Interrupts[0].ID != "call-0" || len(*bodies) != 1 {
		t.Fatalf("%+v, %v", out.Interrupts, out.Fault)
	}
	b.next(map[string]agent.Delivery{"call-0": {TriggerID: "t", Status: "faulted", Error: &wait.Error{Message: "the machine burns"}}})
	if out = b.segment(t.Context(), url, ""); out.Fault != nil || string(out.Output) != `{"content":"fine"}` || len(*bodies) != 2 {
		t.Fatalf("%s, %v, %d requests", out.Output, out.Fault, len(*bodies))
	}
	if !isPrefix(t, json.RawMessage((*bodies)[0]), json.RawMessage((*bodies)[1])) || b.book.open() != 0 {
		t.Errorf("%s", *bodies)
	}
	at := 0
	for _, want := range []string{`"the machine burns"`, `"between"`, `"result of b"`, `"the machine burns"`} {
		i := strings.Index((*bodies)[1][at:], want)
		if i < 0 {
			t.Fatalf("no %s at its place in %s", want, (*bodies)[1])
		}
		at += i + 1
	}
	if out.Info.ToolCalls != 2 { // the other two had their results in the segments before
		t.Errorf("%d calls told by the last segment", out.Info.ToolCalls)
	}
}

// A pattern that fits no tool is a slip by which nobody would be asked.
func TestApproveThatFitsNoTool(t *testing.T) {
	url, bodies := serve(t, good)
	b := newToolBench(t)
	out := b.segment(t.Context(), url, `, "approve": ["greet", "pay_*"]`)
	if out.Fault == nil || out.Fault.Category != fault.MCP || len(*bodies) != 0 ||
		!strings.HasPrefix(out.Fault.Message, `approve: "pay_*" fits none of the tools, so nobody would be asked: bash, my_server__`) {
		t.Errorf("%+v after %d requests", out.Fault, len(*bodies))
	}
}

// A person has to allow a call. One that is denied is an error for the model, with the reason, and a
// permission that is used up is asked for again.
func TestCallsThatNeedAPerson(t *testing.T) {
	for name, c := range map[string]struct {
		payload   string
		used      bool
		interrupt bool
		told      string
		ran       string
	}{
		"allowed":           {`{"approved":true}`, false, false, `"content":"out"`, "x\n"},
		"denied":            {`{"approved":false,"reason":"not today"}`, false, false, `has not allowed this call: not today`, ""},
		"used up by a kill": {`{"approved":true}`, true, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran; echo out"}`, "my_server__echo", `{"text":"free"}`), good)
			b := newToolBench(t)
			more := `, "approve": ["b*h", "gree?"]`
			out := b.segment(t.Context(), url, more)
			if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "permission-1-1" || out.Interrupts[0].Specs[0].Type != wait.TypeTask || !strings.Contains(string(out.Interrupts[0].Specs[0].Payload), `"title":"echo x`) {
				t.Fatalf("%+v, %v", out.Interrupts, out.Fault)
			}
			b.next(map[string]agent.Delivery{"permission-1-1": delivered(c.payload)})
			b.seg.Consume = func(context.Context, string) (bool, error) { return !c.used, nil }
			out = b.segment(t.Context(), url, more)
			if (out.Interrupts != nil) != c.interrupt || out.Fault != nil {
				t.Fatalf("%+v, %v", out.Interrupts, out.Fault)
			}
			if ran, _ := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); string(ran) != c.ran || !strings.Contains((*bodies)[len(*bodies)-1], c.told) || b.made("echo") != 1 {
				t.Errorf("ran %q; %s", ran, *bodies)
			}
		})
	}
}

// A call that was cut off is made again if its tool only reads. Of another one the model learns that
// nobody can tell what it has done, and may call it again.
func TestACallThatWasCutOff(t *testing.T) {
	for tool, c := range map[string]struct {
		told string
		made int
	}{
		"echo":  {`"content":"{}"`, 2},
		"greet": {"nobody can tell", 1},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			url, bodies := serve(t, calls("tool_calls", "my_server__"+tool, `{}`), calls("tool_calls", "my_server__"+tool, `{}`), good)
			b := newToolBench(t)
			if out := b.segment(t.Context(), url, ""); out.Fault != nil {
				t.Fatal(out.Fault)
			}
			// The journal and the ledger as a kill leaves them after the call was sent.
			steps, err := readJournal(b.seg.Dir)
			if err != nil {
				t.Fatal(err)
			}
			j, err := openJournal(b.seg.Dir, steps[:3])
			if err != nil || steps[2].Step != stepIntent {
				t.Fatal(err, steps[2])
			}
			if err := j.close(); err != nil {
				t.Fatal(err)
			}
			for _, call := range b.book.calls {
				call.ended = false
			}
			b.book.calls = b.book.calls[:min(1, len(b.book.calls))]
			before, asked := b.made(tool), len(*bodies)
			if out := b.segment(t.Context(), url, ""); out.Fault != nil || string(out.Output) != `{"content":"fine"}` {
				t.Fatalf("%s, %v", out.Output, out.Fault)
			}
			last := (*bodies)[asked]
			if n := b.made(tool) - before; n != c.made-1 || strings.Contains(last, "nobody can tell") != (tool == "greet") || b.book.open() != 0 {
				t.Errorf("made %d times more, %d open; %s", n, b.book.open(), last)
			}
		})
	}
}

// A tool that is mocked is not called, and its call is marked. A mock of a tool that is not there is a
// fault before the model is asked.
func TestPlayedTools(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "my_server__greet", `{"name":"Ada"}`), good)
	b := newToolBench(t)
	b.seg.Mocks = mock.NewPlayer([]mock.Mock{{Place: "mocks[0]", Match: mock.Match{Tool: "greet"}, Answers: []mock.Answer{{Result: suspend.TextResult("played", false)}}}}, nil)
	out := b.segment(t.Context(), url, "")
	if out.Fault != nil || len(*bodies) != 2 || !strings.Contains((*bodies)[1], `"content":"played"`) || b.made("greet") != 0 {
		t.Errorf("%+v, %s, %d calls", out.Fault, *bodies, b.made("greet"))
	}
	if trace, err := os.ReadFile(filepath.Join(b.seg.Dir, record.FileTrace)); err != nil || !strings.Contains(string(trace), `"evalrun.mock":"mocks[0]"`) {
		t.Errorf("%s, %v", trace, err)
	}
	b.next(nil)
	b.seg.Number, b.seg.History = 1, nil
	b.seg.Mocks = mock.NewPlayer([]mock.Mock{{Place: "mocks[0]", Match: mock.Match{Server: "my server", Tool: "gret"}, Answers: []mock.Answer{{Result: suspend.TextResult("played", false)}}}}, nil)
	if out = b.segment(t.Context(), url, ""); out.Fault == nil || out.Fault.Category != fault.MCP || len(*bodies) != 2 {
		t.Errorf("%+v, %d requests", out.Fault, len(*bodies))
	}
}

// An attempt that goes on after a kill plays a sequence from where the one before was, and counts what
// that has played.
func TestASequenceIsPlayedOnAfterAKill(t *testing.T) {
	again := calls("tool_calls", "my_server__greet", `{}`)
	url, bodies := serve(t, again, again, again, good)
	b := newToolBench(t)
	b.seg.Mocks = mock.NewPlayer(played("first", "second", "third"), nil)
	if out := b.segment(t.Context(), url, ""); out.Fault != nil || len(*bodies) != 4 {
		t.Fatal(out.Fault, len(*bodies))
	}
	steps, err := readJournal(b.seg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(b.seg.Dir, steps[:6]) // the second answer, whose call is about to be made
	if err == nil {
		err = j.close()
	}
	if err != nil || steps[3].Step != stepResult || steps[5].Step != stepIntent {
		t.Fatal(err, steps)
	}
	b.seg.Mocks = mock.NewPlayer(played("first", "second", "third"), nil)
	out := b.segment(t.Context(), url, "")
	if out.Fault != nil || !strings.Contains((*bodies)[4], `"content":"second"`) || strings.Count((*bodies)[4], `"content":"first"`) != 1 {
		t.Errorf("%v, %s", out.Fault, (*bodies)[4:])
	}
	if got := b.seg.Mocks.Played(); got.Calls["mocks[0]"] != 2 {
		t.Errorf("%+v", got)
	}
}

// played is a mock of greet with a sequence.
func played(texts ...string) []mock.Mock {
	one := mock.Mock{Place: "mocks[0]", Match: mock.Match{Tool: "greet"}, Sequence: true}
	for _, text := range texts {
		one.Answers = append(one.Answers, mock.Answer{Result: suspend.TextResult(text, false)})
	}
	return []mock.Mock{one}
}

// Equal calls of one answer ask one question. Its answer is given to the server once, and all of them
// get what comes of that, also if evalrun is killed in between.
func TestEqualCallsThatAsk(t *testing.T) {
	for _, killed := range []bool{false, true} {
		url, bodies := serve(t, calls("tool_calls", "my_server__hire", `{}`, "my_server__hire", `{}`), good)
		b := newToolBench(t)
		s := &asking{}
		h := httptest.NewServer(mcp.NewHTTPHandler(s, mcp.ServerOptions{}))
		t.Cleanup(h.Close)
		b.seg.Servers[0].URL = h.URL
		const more = `, "elicitation": "suspend"`
		out := b.segment(t.Context(), url, more)
		if out.Fault != nil || len(out.Interrupts) != 1 {
			t.Fatalf("%+v, %v", out.Interrupts, out.Fault)
		}
		b.next(map[string]agent.Delivery{out.Interrupts[0].ID: delivered(`{"name":"Ada"}`)})
		if out = b.segment(t.Context(), url, more); out.Fault != nil {
			t.Fatal(out.Fault)
		}
		if killed { // the journal as a kill leaves it after the first result
			steps, err := readJournal(b.seg.Dir)
			if err != nil {
				t.Fatal(err)
			}
			first := slices.IndexFunc(steps, func(one step) bool { return one.Step == stepResult })
			j, err := openJournal(b.seg.Dir, steps[:first+1])
			if err == nil {
				err = j.close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if out = b.segment(t.Context(), url, more); out.Fault != nil {
				t.Fatal(out.Fault)
			}
		}
		last := (*bodies)[len(*bodies)-1]
		if strings.Contains(last, testKey) || !strings.Contains(last, `"default":"[redacted:MODEL_KEY]"`) {
			t.Errorf("a secret in what the server says of its tool: %s", last)
		}
		if strings.Count(last, `"content":"hired Ada"`) != 2 || s.answered.Load() != 1 || b.book.open() != 0 {
			t.Errorf("killed %t: %d answers, %d open, %s", killed, s.answered.Load(), b.book.open(), last)
		}
	}
}

// asking is a server whose tool asks for a name before it does anything.
type asking struct{ answered atomic.Int32 }

// Serve implements mcp.Handler.
func (s *asking) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodDiscover:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"hire","description":"With ` + testKey + `",
			"inputSchema":{"type":"object","properties":{"as":{"type":"string","default":"` + testKey + `"}}}}]}`), nil
	case mcp.MethodToolsCall:
		params, err := jsonobj.ParseObject(r.Params)
		if err != nil {
			return nil, err
		}
		given := params.Object("inputResponses")
		if given == nil {
			return json.RawMessage(`{"resultType":"input_required","requestState":"r","inputRequests":{"who":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}}`), nil
		}
		s.answered.Add(1)
		return suspend.TextResult("hired "+given.Object("who").Object("content").Text("name"), false), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no method %s", r.Method)
}

// Notified implements mcp.Handler.
func (*asking) Notified(*mcp.Session, string, json.RawMessage) {}

// Closed implements mcp.Handler.
func (*asking) Closed(*mcp.Session) {}

// What was delivered answers one question. After a kill the attempt that goes on does not take it for
// the answer to the next one, which nobody has seen yet.
func TestAQuestionAfterAnAnswer(t *testing.T) {
	url, _ := serve(t, calls("tool_calls", "my_server__confirm_delete", `{"filename":"f","ms":3600000}`), good)
	b := newToolBench(t)
	const more = `, "elicitation": "suspend"`
	out := b.segment(t.Context(), url, more)
	if out.Fault != nil || len(out.Interrupts) != 1 {
		t.Fatalf("%+v, %v", out.Interrupts, out.Fault)
	}
	asked, err := (&wait.Input{Requests: json.RawMessage(`{"confirm":{"method":"elicitation/create","params":{"message":"Delete it?"}}}`)}).Payload()
	if err != nil {
		t.Fatal(err)
	}
	b.next(map[string]agent.Delivery{out.Interrupts[0].ID: delivered(string(asked))})
	for attempt := range 2 {
		out = b.segment(t.Context(), url, more)
		if out.Fault != nil || len(out.Interrupts) != 1 || !strings.Contains(string(out.Interrupts[0].Specs[0].Payload), "Delete it?") {
			t.Fatalf("attempt %d: %+v, %v", attempt, out.Interrupts, out.Fault)
		}
		steps, err := readJournal(b.seg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		waits := 0
		for _, one := range steps {
			if one.Step == stepWait {
				waits++
			}
		}
		if waits != 2 {
			t.Errorf("attempt %d: the call waits %d times", attempt, waits)
		}
	}
}

// A server that cannot be used is a fault before the model is asked.
func TestServersThatCannotBeUsed(t *testing.T) {
	url, bodies := serve(t, good)
	b := newToolBench(t)
	b.seg.Servers = []acp.MCPServer{{Name: "gone", Transport: acp.TransportHTTP, URL: "http://127.0.0.1:1/mcp"}}
	if out := b.segment(t.Context(), url, ""); out.Fault == nil || out.Fault.Category != fault.MCP || !strings.Contains(out.Fault.Message, `"gone"`) {
		t.Errorf("%+v", out.Fault)
	}
	b.seg.Gateway = nil
	if out := b.segment(t.Context(), url, ""); out.Fault == nil || out.Fault.Category != fault.NotRunnable || len(*bodies) != 0 {
		t.Errorf("%+v", out.Fault)
	}
}

// What a person has to allow is found by the server's own name, too, whatever that consists of.
func TestToolsToApprove(t *testing.T) {
	l := &loop{segment: &segment{a: &modelAgent{settings: &Settings{}},
		question: question{tools: []mcpTool{{Name: "bank__pay_out", Server: "bank", Tool: "pay/out"}}}}}
	for pattern, want := range map[string]bool{"pay*": true, "pay/out": true, "*out": true, "bank__pay_*": true, "*": true, "pay?out": true, "pay": false, "out*": false} {
		l.a.settings.Approve = []string{"bash", pattern}
		if got := l.mustApprove("bank__pay_out"); got != want {
			t.Errorf("%s: %t", pattern, got)
		}
	}
}

func TestNamesOfTools(t *testing.T) {
	taken := map[string]bool{}
	long := strings.Repeat("x", 100)
	for _, c := range []struct{ server, tool, want string }{
		{"files", "read_file", "files__read_file"},
		{"my server", "a.b/c", "my_server__a_b_c"},
		{"my_server", "a_b_c", "my_server__a_b_c_" + "2a0bd1c3"},
		{"s", long, ""},
	} {
		got := nameFor(c.server, c.tool, taken)
		if len(got) > mostName || unusual.MatchString(got) || c.want != "" && got[:min(len(got), 16)] != c.want[:min(len(c.want), 16)] {
			t.Errorf("%s of %s: %s", c.tool, c.server, got)
		}
	}
	if len(taken) != 4 {
		t.Errorf("two tools have one name: %v", taken)
	}
}
