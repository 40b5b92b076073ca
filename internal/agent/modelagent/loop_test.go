package modelagent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// TestMain lets the test binary be the init of a sandbox.
func TestMain(m *testing.M) {
	sandbox.InitMain()
	os.Exit(m.Run())
}

// bench is a rollout whose segments run in process isolation.
type bench struct {
	*testing.T
	dir     string
	attempt int
	seg     agent.Segment
	with    agent.Options
}

func newBench(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(b.dir, "app"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.seg = agent.Segment{RolloutID: "r", Marker: fmt.Sprint(os.Getpid(), t.Name()), Number: 1, Input: json.RawMessage(`{}`), Sandbox: &agent.Sandbox{
		Config: sandbox.Config{Isolation: sandbox.IsolationProcess}, Home: b.dir, Cwd: filepath.Join(b.dir, "app"), Executable: self}}
	return b
}

// run runs the next attempt. It goes on with the attempt before.
func (b *bench) run(ctx context.Context, api model.API, url, more, prompt string) agent.Outcome {
	b.Helper()
	var before []string
	for n := b.attempt; n > 0; n-- {
		before = append(before, filepath.Join(b.dir, fmt.Sprint("1.", n)))
	}
	b.attempt++
	b.seg.GoesOnFrom, b.seg.Attempt = goesOn(before), b.attempt
	b.seg.Prompt, b.seg.Dir = prompt, filepath.Join(b.dir, fmt.Sprint("1.", b.attempt))
	if err := os.Mkdir(b.seg.Dir, 0o700); err != nil {
		b.Fatal(err)
	}
	o := b.with
	o.Redact, o.Resolve = redact.New(map[string]string{"MODEL_KEY": testKey}).Writer, func(string) (string, bool) { return testKey, true }
	if !strings.Contains(more, `"tools"`) {
		more += `, "tools": ["bash"]`
	}
	a := newAgent(entryOf(b.T, `{`+modelOf(api, url)+more+`}`), o, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	out, err := a.Run(ctx, b.seg)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

func TestCommandsRunInTheSandbox(t *testing.T) {
	for _, api := range allAPIs {
		t.Run(string(api), func(t *testing.T) {
			server, err := fakemodel.Start(fakemodel.Options{Key: testKey})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			b := newBench(t)
			out := b.run(t.Context(), api, server.URL(), "", `[[CALL bash {"command":"echo 1 >one; cd /; pwd"}]] [[CALL bash {"command":"cat one; echo 'a\\b \"ü\"' >&2; exit 3"}]] [[SAY all done]]`)
			if out.Fault != nil || string(out.Output) != `{"content":"all done"}` {
				t.Fatalf("%s, %v", out.Output, out.Fault)
			}
			requests := server.Requests()
			if len(requests) != 3 || out.Info.ToolCalls != 2 || out.Info.Usage[0].OutputTokens != 3*fakemodel.OutputTokens {
				t.Fatalf("%d requests, %+v", len(requests), out.Info)
			}
			var got []string
			for _, m := range requests[2].Messages {
				for _, r := range m.Results {
					got = append(got, r.Text)
				}
			}
			want := []string{"/", "1\na\\b \"ü\"\n[exit status 3]"}
			if api == model.APIGemini {
				want = []string{`{"output":"/"}`, `{"output":"1\na\\b \"ü\"\n[exit status 3]"}`}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !isPrefix(t, requests[0].Body, requests[1].Body) || !isPrefix(t, requests[1].Body, requests[2].Body) {
				t.Error("a request does not begin with the one before")
			}
		})
	}
}

// isPrefix reports whether the conversation of one request begins with that of an earlier one, byte
// for byte, and everything else is the same.
func isPrefix(t *testing.T, earlier, later json.RawMessage) bool {
	t.Helper()
	var all [2]map[string]json.RawMessage
	var items [2][]json.RawMessage
	for i, body := range []json.RawMessage{earlier, later} {
		if err := json.Unmarshal(body, &all[i]); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"messages", "input", "contents"} {
			if raw, ok := all[i][key]; ok {
				if err := json.Unmarshal(unmarked(raw), &items[i]); err != nil {
					t.Fatal(err)
				}
				delete(all[i], key)
			}
		}
	}
	if len(items[0]) > len(items[1]) {
		return false
	}
	return cmp.Equal(items[0], items[1][:len(items[0])]) && cmp.Equal(all[0], all[1])
}

const cacheMark = `"cache_control":{"type":"ephemeral"},`

// unmarked leaves out what marks messages for Anthropic's cache, which moves with each request.
func unmarked(body []byte) []byte { return []byte(strings.ReplaceAll(string(body), cacheMark, "")) }

// Anthropic's cache is told of the last two messages of the user.
func TestTheLastMessagesAreMarkedForTheCache(t *testing.T) {
	item := func(role, content string) json.RawMessage {
		return json.RawMessage(`{"content":` + content + `,"role":"` + role + `"}`)
	}
	one, two := item("user", `[{"text":"first","type":"text"}]`), item("assistant", `[{"text":"a","type":"text"}]`)
	three := item("user", `[{"content":"x","tool_use_id":"1","type":"tool_result"},{"content":"y","tool_use_id":"2","type":"tool_result"}]`)
	four := item("user", `[{"text":"last","type":"text"}]`)
	before := []json.RawMessage{one, two, three, four}
	got := marked(before)
	want := []json.RawMessage{
		one, two, item("user", `[{"content":"x","tool_use_id":"1","type":"tool_result"},{`+cacheMark+`"content":"y","tool_use_id":"2","type":"tool_result"}]`),
		item("user", `[{`+cacheMark+`"text":"last","type":"text"}]`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if string(before[3]) != string(four) {
		t.Error("the conversation itself has marks")
	}
}

// calls is an answer of chat completions with calls of tools: names and arguments in turn.
func calls(reason string, of ...string) answer {
	var list []string
	for i := 0; i < len(of); i += 2 {
		list = append(list, fmt.Sprintf(`{"id":"c%d","type":"function","function":{"name":%q,"arguments":%q}}`, i/2, of[i], of[i+1]))
	}
	return chatAnswer(`{"role":"assistant","content":null,"tool_calls":[`+strings.Join(list, ",")+`]}`, reason)
}

// Each is a line of what trips writers of loops.
func TestCallsThatAreWrong(t *testing.T) {
	one := []string{"bash", `{"command":"echo x >>ran; echo out"}`}
	many := make([]string, 0, 2000)
	for range 1000 {
		many = append(many, "bash", `{"command":"echo x >>ran"}`)
	}
	slow := `, "commandTimeout": "200ms"`
	for name, c := range map[string]struct {
		more     string
		answers  []answer
		category fault.Category
		says     string // of the output or the fault
		results  int    // in the last request
		told     string // in the last request
		ran      int
	}{
		"arguments that are not JSON":            {"", []answer{calls("tool_calls", "bash", "{"), good}, "", "fine", 1, "no JSON object", 0},
		"arguments without a command":            {"", []answer{calls("tool_calls", "bash", "{}"), good}, "", "fine", 1, "have no command", 0},
		"a tool that does not exist":             {"", []answer{calls("tool_calls", "ls", "{}"), good}, "", "fine", 1, `there is no tool`, 0},
		"a zero byte in a command":               {"", []answer{calls("tool_calls", "bash", `{"command":"a\u0000b"}`), good}, "", "fine", 1, "zero byte", 0},
		"wrong calls again and again":            {"", []answer{calls("tool_calls", "ls", "{}")}, fault.Protocol, "3 times in a row", 2, "", 0},
		"a call that is cut by the token limit":  {"", []answer{calls("length", one...), good}, "", "fine", 1, "may be incomplete", 0},
		"several calls in one answer":            {"", []answer{calls("tool_calls", append(append(one, "ls", "{}"), one...)...), good}, "", "fine", 3, "there is no tool", 2},
		"1,000 calls in one answer":              {"", []answer{calls("tool_calls", many...), good}, "", "fine", 1000, "at most 100 calls", 100},
		"a refusal after a call":                 {"", []answer{calls("tool_calls", one...), chatAnswer(`{"content":null,"refusal":"no"}`, "stop")}, fault.AgentError, "refuses", 1, "out", 1},
		"an empty answer after a call":           {"", []answer{calls("tool_calls", one...), chatAnswer(`{"content":""}`, "stop")}, "", `{"content":""}`, 1, "out", 1},
		"an empty answer at once":                {"", []answer{chatAnswer(`{"content":""}`, "stop")}, fault.NoOutput, "empty", 0, "", 0},
		"401 in the middle":                      {"", []answer{calls("tool_calls", one...), {status: 401, body: "{}"}}, fault.Model, "does not accept the key", 1, "out", 1},
		"429 in the middle":                      {"", []answer{calls("tool_calls", one...), {status: 429, body: "{}"}, good}, "", "fine", 1, "out", 1},
		"an answer that ends early":              {"", []answer{calls("tool_calls", one...), {body: "{", early: true}, good}, "", "fine", 1, "out", 1},
		"a context that is full":                 {"", []answer{calls("tool_calls", one...), {status: 400, body: `{"error":{"message":"context_length_exceeded"}}`}}, fault.AgentError, "longer than the model's context", 1, "out", 1},
		"too many turns":                         {`, "turns": 2`, []answer{calls("tool_calls", one...)}, "", `"category":"budget"`, 1, "out", 2},
		"a command without an end":               {slow, []answer{calls("tool_calls", "bash", `{"command":"sleep 1000"}`), good}, "", "fine", 1, "[ended, because it took longer than 200ms]", 0},
		"a command that ignores SIGTERM":         {slow, []answer{calls("tool_calls", "bash", `{"command":"trap '' TERM; while :; do sleep 1000; done"}`), good}, "", "fine", 1, "took longer than", 0},
		"a command that prints much":             {`, "commandOutput": 100`, []answer{calls("tool_calls", "bash", `{"command":"echo first; seq 100000; echo last"}`), good}, "", "fine", 1, "bytes are left out", 0},
		"a command that leaves something behind": {"", []answer{calls("tool_calls", "bash", `{"command":"sleep 1000 & echo left"}`), good}, "", "fine", 1, `left`, 0},
		"a command that ends the shell":          {"", []answer{calls("tool_calls", "bash", `{"command":"kill -9 $PPID; sleep 1000"}`, "bash", `{"command":"echo again"}`), good}, "", "fine", 2, "again", 0},
		"a command that reads its input":         {"", []answer{calls("tool_calls", "bash", `{"command":"cat; echo read"}`), good}, "", "fine", 1, "read", 0},
		"a command of several lines":             {"", []answer{calls("tool_calls", "bash", `{"command":"cat <<'E'\na % \\n $HOME\nE\n"}`), good}, "", "fine", 1, `a % \\n $HOME`, 0},
		"no output":                              {"", []answer{calls("tool_calls", "bash", `{"command":"true"}`), good}, "", "fine", 1, "[no output]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, bodies := serve(t, c.answers...)
			b := newBench(t)
			out := b.run(t.Context(), model.APIChat, url, c.more, "Work.")
			got := string(out.Output)
			if out.Fault != nil {
				got = out.Fault.Message
			}
			if (out.Fault == nil) != (c.category == "") || out.Fault != nil && out.Fault.Category != c.category || !strings.Contains(got, c.says) {
				t.Errorf("got %s %+v, want %s: %s", got, out.Fault, c.category, c.says)
			}
			last := (*bodies)[len(*bodies)-1]
			if n := strings.Count(last, `"role":"tool"`); n != c.results || !strings.Contains(last, c.told) {
				t.Errorf("%d results, want %d with %s in %.2000s", n, c.results, c.told, last)
			}
			ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran"))
			if n := strings.Count(string(ran), "x\n"); n != c.ran || err != nil && c.ran > 0 {
				t.Errorf("%d commands ran, want %d", n, c.ran)
			}
		})
	}
}

// Reasoning goes back as it came, in the order in which it came, and a turn that pauses goes on.
func TestReasoningGoesBackUnchanged(t *testing.T) {
	for api, c := range map[model.API]struct {
		answers []answer
		want    []string
	}{
		model.APIMessages: {[]answer{
			{body: `{"content":[{"type":"thinking","thinking":"a <b>","signature":"c2ln"},{"type":"redacted_thinking","data":"x"},{"type":"tool_use","id":"t1","name":"bash","input":{"command":"true"}}],"stop_reason":"tool_use"}`},
			{body: `{"content":[{"type":"text","text":"so far"}],"stop_reason":"pause_turn"}`},
			{body: `{"content":[{"type":"text","text":"end"}],"stop_reason":"end_turn"}`},
		}, []string{
			`{"content":[{"type":"thinking","thinking":"a <b>","signature":"c2ln"},{"type":"redacted_thinking","data":"x"},{"type":"tool_use","id":"t1","name":"bash","input":{"command":"true"}}],"role":"assistant"},` +
				`{"content":[{"content":"[no output]","tool_use_id":"t1","type":"tool_result"}],"role":"user"}`,
			`{"content":[{"type":"text","text":"so far"}],"role":"assistant"}]`,
		}},
		model.APIResponses: {[]answer{
			{body: `{"status":"completed","output":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAA"}, {"type":"function_call","id":"fc_1","call_id":"t1","name":"bash","arguments":"{\"command\":\"true\"}"}]}`},
			{body: `{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"end"}]}]}`},
		}, []string{
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAA"},{"type":"function_call","id":"fc_1","call_id":"t1","name":"bash","arguments":"{\"command\":\"true\"}"},` +
				`{"call_id":"t1","output":"[no output]","type":"function_call_output"}`,
		}},
		model.APIGemini: {[]answer{
			{body: `{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"bash","args":{"command":"true"}},"thoughtSignature":"c2ln"}]},"finishReason":"STOP"}]}`},
			{body: `{"candidates":[{"content":{"role":"model","parts":[{"text":"end"}]},"finishReason":"STOP"}]}`},
		}, []string{
			`{"role":"model","parts":[{"functionCall":{"name":"bash","args":{"command":"true"}},"thoughtSignature":"c2ln"}]},` +
				`{"parts":[{"functionResponse":{"name":"bash","response":{"output":"[no output]"}}}],"role":"user"}`,
		}},
	} {
		t.Run(string(api), func(t *testing.T) {
			url, bodies := serve(t, c.answers...)
			out := newBench(t).run(t.Context(), api, url, "", "Work.")
			if out.Fault != nil || string(out.Output) != `{"content":"end"}` {
				t.Fatalf("%s, %v", out.Output, out.Fault)
			}
			last := string(unmarked([]byte((*bodies)[len(*bodies)-1])))
			for _, want := range c.want {
				if !strings.Contains(last, want) {
					t.Errorf("no %s in %s", want, last)
				}
			}
		})
	}
}

// A stop in the middle of a command: the next attempt says so to the model, with what was printed,
// and does not run it again. Its first request is what the one after the command would have been.
func TestAStoppedConversationGoesOn(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran; echo printed; echo >begun; sleep 1000"}`, "bash", `{"command":"echo second"}`), good)
	b := newBench(t)
	begun := filepath.Join(b.seg.Sandbox.Cwd, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	go func() {
		_, _ = os.ReadFile(begun) // it returns when the command has written into the pipe
		stop(fault.New(fault.Interrupted, "stopped"))
	}()
	out := b.run(ctx, model.APIChat, url, "", "Work.")
	if out.Fault == nil || out.Fault.Category != fault.Interrupted || len(*bodies) != 1 {
		t.Fatalf("%+v, %d requests", out.Fault, len(*bodies))
	}
	if out = b.run(t.Context(), model.APIChat, url, "", "Work."); out.Fault != nil || string(out.Output) != `{"content":"fine"}` {
		t.Fatalf("%s, %v", out.Output, out.Fault)
	}
	if len(*bodies) != 2 || !isPrefix(t, json.RawMessage((*bodies)[0]), json.RawMessage((*bodies)[1])) ||
		!strings.Contains((*bodies)[1], `"content":"printed\n[interrupted; the command may have run`) || !strings.Contains((*bodies)[1], `"content":"second"`) {
		t.Errorf("%s", *bodies)
	}
	if ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err != nil || string(ran) != "x\n" {
		t.Errorf("%q, %v", ran, err)
	}
}

// A fault of the model is not the end of the conversation: a repeated attempt goes on after it.
func TestARepeatedAttemptGoesOn(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran"}`), answer{status: 400, body: "{}"}, good)
	b := newBench(t)
	if out := b.run(t.Context(), model.APIChat, url, "", "Work."); out.Fault == nil || out.Fault.Category != fault.Model {
		t.Fatalf("%+v", out.Fault)
	}
	if out := b.run(t.Context(), model.APIChat, url, "", "Work."); string(out.Output) != `{"content":"fine"}` || out.Info.ToolCalls != 1 {
		t.Errorf("%s, %+v, %+v", out.Output, out.Fault, out.Info)
	}
	if len(*bodies) != 3 || (*bodies)[1] != (*bodies)[2] {
		t.Errorf("the request is not repeated byte for byte: %s", *bodies)
	}
	if ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err != nil || string(ran) != "x\n" {
		t.Errorf("%q, %v", ran, err)
	}
}

// Until the output of a conversation is committed, evalrun may be killed. The next attempt finds the
// same output in what is stored: it asks for nothing and runs nothing.
func TestAConversationThatHadEndedIsNotRepeated(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran"}`), good, chatAnswer(`{"content":"again"}`, "stop"))
	b := newBench(t)
	for range 2 {
		if out := b.run(t.Context(), model.APIChat, url, "", "Work."); out.Fault != nil || string(out.Output) != `{"content":"fine"}` || out.Info.ToolCalls != 1 {
			t.Fatalf("%s, %v, %+v", out.Output, out.Fault, out.Info)
		}
	}
	if len(*bodies) != 2 {
		t.Errorf("%d requests, want 2", len(*bodies))
	}
	if ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err != nil || string(ran) != "x\n" {
		t.Errorf("%q, %v", ran, err)
	}
}

// An attempt that has failed is not gone on with: another one begins anew.
func TestAConversationThatHasFailedBeginsAnew(t *testing.T) {
	url, _ := serve(t, chatAnswer(`{"content":null,"refusal":"no"}`, "stop"))
	b := newBench(t)
	b.run(t.Context(), model.APIChat, url, "", "Work.")
	if next := goesOn([]string{b.seg.Dir}); next != "" {
		t.Errorf("gone on with %s", next)
	}
}

// Until an end by a limit is committed, evalrun may be killed, too. The next attempt ends in the same
// way, and asks for nothing.
func TestAConversationThatALimitHasEnded(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran"}`))
	b := newBench(t)
	for range 2 {
		out := b.run(t.Context(), model.APIChat, url, `, "turns": 2`, "Work.")
		if out.Limit == nil || out.Limit.Category != fault.Budget || !strings.Contains(string(out.Output), "answered 2 times") || out.Info.ToolCalls != 2 {
			t.Errorf("%s, %+v, %+v", out.Output, out.Limit, out.Fault)
		}
	}
	if len(*bodies) != 2 {
		t.Errorf("%d requests, want 2", len(*bodies))
	}
	if ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err != nil || string(ran) != "x\nx\n" {
		t.Errorf("%q, %v", ran, err)
	}
}

// What is too long for the model is cut: the older half of the answers is left out, and said to be.
// After a kill the requests have the same bytes.
func TestAConversationThatIsTooLongIsCut(t *testing.T) {
	var answers []answer
	for i := range 4 {
		answers = append(answers, calls("tool_calls", "bash", fmt.Sprintf(`{"command":"echo result %d"}`, i)))
	}
	refused := answer{status: 400, body: `{"error":{"message":"This model's maximum context length is 10 tokens"}}`}
	url, bodies := serve(t, append(answers, refused, refused, answer{status: 401, body: "{}"}, good)...)
	b := newBench(t)
	if out := b.run(t.Context(), model.APIChat, url, "", "Work."); out.Fault == nil || out.Fault.Category != fault.Model {
		t.Fatalf("%s, %+v", out.Output, out.Fault)
	}
	if out := b.run(t.Context(), model.APIChat, url, "", "Work."); string(out.Output) != `{"content":"fine"}` || out.Info.ToolCalls != 4 {
		t.Fatalf("%s, %+v", out.Output, out.Fault)
	}
	if n := len(*bodies); n != 8 || (*bodies)[6] != (*bodies)[7] {
		t.Fatalf("%d requests: %s", n, *bodies)
	}
	for i, want := range []struct {
		answers int
		says    string
	}{{4, ""}, {2, "The first 2 of your answers"}, {1, "The first 3 of your answers"}} {
		body := (*bodies)[4+i]
		if n := strings.Count(body, `"role":"tool"`); n != want.answers || !strings.Contains(body, want.says) || !strings.Contains(body, `"Work."`) || strings.Count(body, "of your answers") != min(i, 1) {
			t.Errorf("request %d has %d results: %s", 4+i, n, body)
		}
	}

	for i := range answers {
		answers[i].body = strings.ReplaceAll(answers[i].body, `"prompt_tokens":7`, `"prompt_tokens":150`)
	}
	url, bodies = serve(t, answers[0], answers[1], answers[2], good)
	b = newBench(t)
	if out := b.run(t.Context(), model.APIChat, url, `, "contextTokens": 100`, "Work."); out.Fault != nil || len(*bodies) != 4 || strings.Count((*bodies)[3], `"role":"tool"`) != 1 {
		t.Errorf("%+v, %s", out.Fault, *bodies)
	}
}

// A secret at the place from which on output is left out is taken out as a whole: its first half is
// not sent.
func TestASecretIsNotCutInTwo(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"printf %045d%s%s 0 `+testKey[:11]+" "+testKey[11:]+`; seq 1000"}`), good)
	if out := newBench(t).run(t.Context(), model.APIChat, url, `, "commandOutput": 100`, "Work."); out.Fault != nil {
		t.Fatal(out.Fault)
	}
	if zeros := strings.Repeat("0", 45); len(*bodies) != 2 || !strings.Contains((*bodies)[1], zeros+"[reda\\n[") {
		t.Errorf("sent %s", *bodies)
	}
}

// A shell that cannot be started again after a command has ended it is a fault, also if the setup of the
// sandbox has a log.
func TestAShellThatCannotBeStartedAgain(t *testing.T) {
	url, _ := serve(t, calls("tool_calls", "bash", `{"command":"rmdir \"$PWD\"; kill -9 $PPID; sleep 1000"}`), good)
	b := newBench(t)
	b.seg.Sandbox.Setup = &sandbox.Setup{Commands: []sandbox.SetupCommand{{Command: "echo set up"}}}
	if out := b.run(t.Context(), model.APIChat, url, "", "Work."); out.Fault == nil || out.Fault.Category == fault.Internal {
		t.Errorf("%s, %v", out.Output, out.Fault)
	}
	if log, err := os.ReadFile(filepath.Join(b.seg.Dir, fileSetup)); err != nil || !strings.Contains(string(log), "set up") {
		t.Errorf("%q, %v", log, err)
	}
}

// The last line of a journal may be torn: that step has not been made.
func TestATornJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(step{Step: stepBegin, System: "s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"step":"answer","items":[`); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	got, err := readJournal(dir)
	if diff := cmp.Diff([]step{{Step: stepBegin, System: "s"}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
