package acp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// These are benchflow's tests of its ACP client. Those about log files, clocks, settings and the
// choice of a model are not here.

func TestVectorsOfInitialize(t *testing.T) {
	c, p := dial(t, &client{}, Options{})
	result := background(func() error {
		_, err := c.Initialize(testContext(t), Implementation{Name: "evalrun", Version: "1.2.3"})
		return err
	})
	m := p.expect("initialize")
	t.Run("protocol version 1 and no capabilities", func(t *testing.T) {
		want := `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false},` +
			`"clientInfo":{"name":"evalrun","version":"1.2.3"}}`
		if string(m.Params) != want {
			t.Errorf("got %s", m.Params)
		}
	})
	p.answer(m, `{"protocolVersion":2}`)
	if err := testenv.Receive(t, result); !isProtocolError("initialize: the agent speaks protocol version 2, evalrun speaks 1; use a version of the agent that does")(err) {
		t.Errorf("got %v", err)
	}
}

func TestVectorsOfUnservedRequests(t *testing.T) {
	_, p := dial(t, &client{}, Options{})
	for name, method := range map[string]string{
		"fs/read_text_file":      "fs/read_text_file",
		"fs/write_text_file":     "fs/write_text_file",
		"terminal/create":        "terminal/create",
		"terminal/output":        "terminal/output",
		"totally/made/up":        "totally/made/up",
		"elicitation/create":     "elicitation/create",
		"a request of qwen's":    "craft/drainMidTurnQueue",
		"a request of ours":      "session/prompt",
		"a notification with id": "session/update",
	} {
		t.Run(name, func(t *testing.T) {
			p.send(`{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{"sessionId":"s","path":"/x"}}` + "\n")
			a := p.expect("")
			if string(a.ID) != "7" || a.Result != nil || string(a.Error) != `{"code":-32601,"message":"Method not found: `+method+`"}` {
				t.Errorf("got %+v", a)
			}
		})
	}
}

func TestVectorsOfPermissions(t *testing.T) {
	ao, aa := PermissionOption{ID: "ao", Kind: AllowOnce}, PermissionOption{ID: "aa", Kind: AllowAlways}
	bypass := PermissionOption{ID: "bypassPermissions", Kind: AllowAlways}
	reject, never := PermissionOption{ID: "no", Kind: RejectOnce}, PermissionOption{ID: "never", Kind: RejectAlways}
	type options = []PermissionOption
	for _, v := range []struct {
		name              string
		options           options
		allow, once, deny string // "" is cancelled
	}{
		{"the one that allows", options{reject, {ID: "allow", Kind: AllowOnce}}, "allow", "allow", "no"},
		{"bypassPermissions first", options{ao, bypass}, "bypassPermissions", "ao", ""},
		{"bypassPermissions first, also after an allow_always", options{aa, bypass}, "bypassPermissions", "", ""},
		{"then allow_always", options{ao, aa}, "aa", "ao", ""},
		{"the first allow_always", options{aa, {ID: "aa2", Kind: AllowAlways}}, "aa", "", ""},
		{"then allow_once", options{{ID: "first"}, {ID: "second", Kind: AllowOnce}}, "second", "second", ""},
		{"the last allow_once", options{ao, {ID: "ao2", Kind: AllowOnce}}, "ao2", "ao", ""},
		{"then the first of all", options{{ID: "only", Kind: RejectOnce}}, "only", "", "only"},
		{"of none nothing can be chosen", nil, "", "", ""}, // A26
		{"deny once rather than always", options{never, reject}, "never", "", "no"},
		{"deny always rather than cancel", options{ao, never}, "ao", "ao", "never"},
	} {
		t.Run(v.name, func(t *testing.T) {
			once, ok := Once(v.options)
			if allow, deny := Allow(v.options), Deny(v.options); allow.OptionID != v.allow || once.OptionID != v.once || deny.OptionID != v.deny {
				t.Errorf("allow %q, once %q, deny %q", allow.OptionID, once.OptionID, deny.OptionID)
			}
			if ok != (v.once != "") {
				t.Errorf("once reports %v", ok)
			}
		})
	}

	// Unlike benchflow's: there an error approves.
	t.Run("the handler decides, and its error denies", func(t *testing.T) {
		cl := &client{}
		answers := []func() (PermissionOutcome, error){
			func() (PermissionOutcome, error) { return PermissionOutcome{"mine"}, nil },
			func() (PermissionOutcome, error) { return PermissionOutcome{"mine"}, errors.New("cannot decide") },
		}
		cl.permit = func(context.Context, PermissionRequest) (PermissionOutcome, error) { return answers[len(cl.asked)-1]() }
		_, p := dial(t, cl, Options{})
		for _, want := range []string{"mine", "no"} {
			p.send(`{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t","kind":"edit","rawInput":{"a":1}},` +
				`"options":[{"optionId":"ao","kind":"allow_once","name":"Yes"},{"optionId":"no","kind":"reject_once","name":"No"}]}}` + "\n")
			if a := p.expect(""); string(a.Result) != `{"outcome":{"outcome":"selected","optionId":"`+want+`"}}` {
				t.Errorf("got %s, want %s", a.Result, want)
			}
		}
		if r := cl.asked[0]; r.SessionID != "s" || r.ToolCall.Kind != "edit" || string(r.ToolCall.RawInput) != `{"a":1}` || len(r.Options) != 2 || r.Options[1].Name != "No" || r.Raw == nil {
			t.Errorf("the handler was asked %+v", r)
		}
	})
}

func TestVectorsOfAConversation(t *testing.T) {
	update := func(body string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"mock-session-1","update":` + body + "}}\n"
	}
	var calls ToolCalls
	cl := &client{onUpdate: func(u Update) { calls.Apply(u) }}
	c, p := dial(t, cl, Options{})
	turns := 0
	p.serve(func(m rpc) string {
		switch m.Method {
		case "initialize":
			return `{"protocolVersion":1,"agentInfo":{"name":"mock-agent","version":"1"}}`
		case "authenticate":
			if string(m.Params) == `{"methodId":"api-key"}` {
				return "{}"
			}
			p.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32602,"message":"unknown method"}}` + "\n")
			return "{}" // too late, and dropped
		case "session/new":
			return `{"sessionId":"mock-session-1"}`
		}
		if turns++; turns == 1 {
			p.send(update(`{"sessionUpdate":"tool_call","toolCallId":"tc_1","title":"echo hello","kind":"execute","status":"pending"}`) +
				update(`{"sessionUpdate":"tool_call_update","toolCallId":"tc_1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"hello"}}]}`) +
				update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I received: hi"}}`))
			return `{"stopReason":"end_turn","usage":{"inputTokens":3}}`
		}
		p.send(`{"jsonrpc":"2.0","id":9000,"method":"session/request_permission","params":{"sessionId":"mock-session-1","options":[{"optionId":"ok","kind":"allow_once"}]}}` + "\n")
		if a, _ := p.next(); string(a.ID) != "9000" || !strings.Contains(string(a.Result), `"ok"`) {
			t.Errorf("the permission was answered %+v", a)
		}
		p.send(update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"; done"}}`))
		return `{"stopReason":"end_turn"}`
	})
	ctx := testContext(t)
	t.Run("authenticate", func(t *testing.T) {
		if err := c.Authenticate(ctx, "api-key"); err != nil {
			t.Error(err)
		}
		var agentError *AgentError
		if err := c.Authenticate(ctx, "other"); !errors.As(err, &agentError) || agentError.Code != CodeInvalidParams {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a turn with a tool", func(t *testing.T) {
		info, err := c.Initialize(ctx, Implementation{})
		if err != nil || info.Agent.Name != "mock-agent" {
			t.Fatalf("got %+v, %v", info, err)
		}
		s, err := c.NewSession(ctx, SessionParams{Cwd: "/app"})
		if err != nil || s.ID != "mock-session-1" {
			t.Fatalf("got %+v, %v", s, err)
		}
		result, err := c.Prompt(ctx, s.ID, Text("hi"))
		if err != nil || result.StopReason != StopEndTurn || string(result.Usage) != `{"inputTokens":3}` {
			t.Fatalf("got %+v, %v", result, err)
		}
		if all := calls.All(); len(all) != 1 || all[0].Status != ToolCompleted || all[0].Title != "echo hello" || all[0].Kind != "execute" || len(calls.Open()) != 0 {
			t.Errorf("got %+v", all)
		}
		if cl.text() != "I received: hi" {
			t.Errorf("got %q", cl.text())
		}
	})
	t.Run("a permission in the middle of a turn", func(t *testing.T) {
		if result, err := c.Prompt(ctx, "mock-session-1", Text("go")); err != nil || result.StopReason != StopEndTurn {
			t.Fatalf("got %+v, %v", result, err)
		}
		if cl.text() != "I received: hi; done" {
			t.Errorf("got %q", cl.text())
		}
	})
	t.Run("a prompt without a session", func(t *testing.T) {
		if _, err := c.Prompt(ctx, "", Text("go")); err == nil {
			t.Error("no error")
		}
	})
}

func TestVectorsOfUpdates(t *testing.T) {
	apply := func(s *ToolCalls, updates ...string) (last *ToolCall) {
		for _, raw := range updates {
			u, ok := parseUpdate([]byte(`{"sessionId":"s","update":` + raw + "}"))
			if !ok {
				t.Fatalf("%s is no update", raw)
			}
			last = s.Apply(u)
		}
		return last
	}
	t.Run("unknown kinds are handed on and change nothing", func(t *testing.T) {
		var s ToolCalls
		if got := apply(&s, `{"sessionUpdate":"_vendor_tool","toolCallId":"x"}`); got != nil || len(s.All()) != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("an update for a call that was not announced", func(t *testing.T) {
		var s ToolCalls
		if got := apply(&s, `{"sessionUpdate":"tool_call_update","toolCallId":"x"}`); got.Kind != "tool" || got.Status != ToolInProgress {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("an unknown status", func(t *testing.T) {
		var s ToolCalls
		if got := apply(&s, `{"sessionUpdate":"tool_call","toolCallId":"x"}`, `{"sessionUpdate":"tool_call_update","toolCallId":"x","status":"thinking"}`); got.Status != ToolInProgress {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("a call that has not ended is open", func(t *testing.T) {
		var s ToolCalls
		apply(&s, `{"sessionUpdate":"tool_call","toolCallId":"x"}`, `{"sessionUpdate":"tool_call","toolCallId":"y","status":"failed"}`)
		if open := s.Open(); len(open) != 1 || open[0].ID != "x" || open[0].Status != ToolPending {
			t.Errorf("got %+v", open)
		}
	})
	t.Run("fields that are present replace", func(t *testing.T) {
		var s ToolCalls
		got := apply(&s,
			`{"sessionUpdate":"tool_call","toolCallId":"x","title":"t","kind":"edit","rawInput":{"a":1},"content":[1,2],"locations":[{"path":"/a"}],"name":"n"}`,
			`{"sessionUpdate":"tool_call_update","toolCallId":"x","title":null,"status":"completed","rawInput":null,"rawOutput":"out","content":[3],"kind":7}`)
		want := ToolCall{ID: "x", Title: "t", Kind: "edit", Status: ToolCompleted, Name: "n", RawInput: []byte(`{"a":1}`), RawOutput: []byte(`"out"`),
			Content: []byte("[3]"), Locations: []byte(`[{"path":"/a"}]`)}
		if !slices.Equal([]string{got.ID, got.Title, got.Kind, got.Status, got.Name}, []string{want.ID, want.Title, want.Kind, want.Status, want.Name}) ||
			string(got.RawInput) != string(want.RawInput) || string(got.RawOutput) != string(want.RawOutput) ||
			string(got.Content) != string(want.Content) || string(got.Locations) != string(want.Locations) {
			t.Errorf("got %+v", got)
		}
	})
}

const firstAnswer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`

func TestVectorsOfFraming(t *testing.T) {
	type line struct {
		text     string
		messages int
	}
	for _, v := range []struct {
		name  string
		lines []line
	}{
		{"lines that are no messages", []line{{"123", 0}, {`"x"`, 0}, {"null", 0}, {`{"id":100001,"level":"info"}`, 0}, {firstAnswer, 1}}},
		{"a shell's greeting before the first message", []line{{"\x1b[?2004h\x1b]0;root@x: /\x07root@x:/# \x1b[?2004l" + firstAnswer, 1}}},
		{"with the other end of a title", []line{{"\x1b]0;{title}\x1b\\$ " + firstAnswer + "\x1b[0;1m", 1}}},
		{"an escape sequence behind it", []line{{firstAnswer + "\x1b[K", 1}}},
		{"a log line is no message", []line{{`INFO {"jsonrpc":"2.0","note":"boot"}`, 0}, {"INFO " + firstAnswer, 1}}},
		{"text before a message, before and after the first", []line{{"noise" + firstAnswer, 1}, {"noise" + firstAnswer, 0}, {firstAnswer, 1}}},
		{"escape sequences after the first", []line{{firstAnswer, 1}, {firstAnswer + "\x1b[K", 0}}},
		{"glued messages, always", []line{{firstAnswer + firstAnswer, 2}, {chunk("a") + " " + chunk("b") + "\r" + firstAnswer, 3}}},
		{"glued to what is no message", []line{{firstAnswer + `{"level":"info"}`, 0}, {firstAnswer, 1}, {firstAnswer + "x", 0}}},
		{"a message is an object with the right members", []line{
			{`{"jsonrpc":"1.0","id":1,"result":{}}`, 0}, {`{"id":1,"result":{}}`, 0}, {`[` + firstAnswer + `]`, 0}, {`{"jsonrpc":"2.0"}`, 0},
			{`{"jsonrpc":"2.0","method":7}`, 0}, {`{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`, 0}, {`{"jsonrpc":"2.0","Method":"x"}`, 0},
			{`{"jsonrpc":"2.0","method":"x","params":{]}`, 0}, {`{"jsonrpc":"2.0","method":"x","params":{`, 0}, {`{"jsonrpc":"2.0","meth\u006fd":"x"}`, 1}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			var d decoder
			for _, l := range v.lines {
				if got := d.decode([]byte(l.text)); len(got) != l.messages {
					t.Errorf("%q: %d messages, want %d", l.text, len(got), l.messages)
				}
			}
		})
	}

	// Unlike benchflow's, which skips the line: the answer that was in it would be waited for in
	// vain.
	t.Run("a line that is too long ends the connection", TestLineThatIsTooLongEndsTheConnection)

	t.Run("without noise nothing is told of", func(t *testing.T) {
		cl := &client{}
		c, p := dial(t, cl, cl.options(Options{}))
		p.serve(func(m rpc) string { return `{"protocolVersion":1}` })
		if _, err := c.Initialize(testContext(t), Implementation{}); err != nil {
			t.Error(err)
		}
		if c.Close(); len(cl.noise) != 0 {
			t.Errorf("noise: %q", cl.noise)
		}
	})
}
