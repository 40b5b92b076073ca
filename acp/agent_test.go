package acp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestSessionOutlivesItsProcess(t *testing.T) {
	first := startAgent(t, "", "", Options{}, "-version", "2.5.0")
	s := first.open()
	if got := first.say(s, "remember 42"); got != "I received: remember 42" {
		t.Errorf("got %q", got)
	}
	first.say(s, "[[SAY second]][[UPDATE {\"sessionUpdate\":\"agent_thought_chunk\",\"content\":{\"type\":\"text\",\"text\":\"hm\"}}]]")
	first.kill()

	params := SessionParams{Cwd: first.cwd}
	const history = `earlier turns: 2 ["I received: remember 42","second"]`
	resumed := startAgent(t, first.home, "", Options{})
	if _, err := resumed.Initialize(testContext(t), Implementation{}); err != nil {
		t.Fatal(err)
	}
	if _, err := resumed.ResumeSession(testContext(t), s.ID, params); err != nil || resumed.client.count() != 0 {
		t.Fatalf("session/resume: %v, and %d updates", err, resumed.client.count())
	}
	if got := resumed.say(s, "[[HISTORY]]"); got != history {
		t.Errorf("got %q", got)
	}
	resumed.kill()

	loaded := startAgent(t, first.home, "", Options{})
	info, err := loaded.Initialize(testContext(t), Implementation{})
	if err != nil || info.Agent.Version != "1.0.0" || !info.Capabilities.LoadSession || !info.Capabilities.Resume || !info.Capabilities.Close {
		t.Fatalf("got %+v, %v", info, err)
	}
	got, err := loaded.LoadSession(testContext(t), s.ID, params)
	if err != nil || got.ID != s.ID {
		t.Fatalf("session/load: %+v, %v", got, err)
	}
	var kinds []string
	for _, u := range loaded.client.updates { // all are there before the answer
		kinds = append(kinds, u.Kind)
	}
	want := []string{UpdateUserMessage, UpdateAgentMessage, UpdateUsage, UpdateUserMessage, UpdateAgentMessage, UpdateAgentThought, UpdateUsage,
		UpdateUserMessage, UpdateAgentMessage, UpdateUsage}
	if !slices.Equal(kinds, want) {
		t.Errorf("the replay was %q", kinds)
	}
	if text := loaded.client.text(); text != "I received: remember 42second"+history {
		t.Errorf("the replay said %q", text)
	}
	if err := loaded.CloseSession(testContext(t), s.ID); err != nil {
		t.Error(err)
	}
	var agentError *AgentError
	if _, err := loaded.Prompt(testContext(t), s.ID, Text("x")); !errors.As(err, &agentError) || agentError.Code != CodeResourceMissing {
		t.Errorf("a prompt to a closed session: %v", err)
	}
	if _, err := loaded.LoadSession(testContext(t), "no such", params); !errors.As(err, &agentError) || agentError.Code != CodeResourceMissing {
		t.Errorf("an unknown session: %v", err)
	}
}

func TestSettingsOfASession(t *testing.T) {
	a := startAgent(t, "", "", Options{}, "-no-load", "-no-resume", "-no-http", "-no-sse")
	info, err := a.Initialize(testContext(t), Implementation{})
	if c := info.Capabilities; err != nil || c.LoadSession || c.Resume || c.Accepts(TransportHTTP) || c.Accepts(TransportSSE) || !c.Accepts(TransportStdio) {
		t.Fatalf("got %+v, %v", info, err)
	}
	s, err := a.NewSession(testContext(t), SessionParams{Cwd: a.cwd})
	if err != nil || s.Modes == nil || len(s.Modes.Available) != 2 || s.Models == nil || s.Models.Current != "small" || len(s.ConfigOptions) != 1 || s.ConfigOptions[0].ID != "model" {
		t.Fatalf("got %+v, %v", s, err)
	}
	if err := a.SetMode(testContext(t), s.ID, "plan"); err != nil {
		t.Error(err)
	}
	if mode, _ := a.client.updates[0].CurrentMode(); mode != "plan" {
		t.Errorf("the mode is %q", mode)
	}
	if err := a.SetModel(testContext(t), s.ID, "large"); err != nil {
		t.Error(err)
	}
	if options, err := a.SetConfigOption(testContext(t), s.ID, "model", "small"); err != nil || len(options) != 1 || string(options[0].Current) != `"small"` {
		t.Errorf("got %+v, %v", options, err)
	}
	var agentError *AgentError
	if _, err := a.SetConfigOption(testContext(t), s.ID, "fast", true); !errors.As(err, &agentError) {
		t.Errorf("got %v", err)
	}
	if _, err := a.SetConfigOption(testContext(t), s.ID, "fast", 1); err == nil || errors.As(err, new(*AgentError)) {
		t.Errorf("got %v", err)
	}
	if _, err := a.LoadSession(testContext(t), s.ID, SessionParams{Cwd: a.cwd}); !errors.As(err, &agentError) || agentError.Code != CodeMethodNotFound {
		t.Errorf("got %v", err)
	}
	if !a.recorded("> ", `"configId":"fast"`, `"type":"boolean"`, `"value":true`) {
		t.Error("a bool was not sent as boolean")
	}
}

// A27: an agent's sessions are listed, forked and deleted.
func TestSessionsAreManaged(t *testing.T) {
	a := startAgent(t, "", "", Options{})
	info, err := a.Initialize(testContext(t), Implementation{})
	if caps := info.Capabilities; err != nil || !caps.List || !caps.Fork || !caps.Delete {
		t.Fatalf("got %+v, %v", info, err)
	}
	params := SessionParams{Cwd: a.cwd}
	s, err := a.NewSession(testContext(t), params)
	if err != nil {
		t.Fatal(err)
	}
	a.say(s, "[[SAY one]]")
	fork, err := a.ForkSession(testContext(t), s.ID, params)
	if err != nil || fork.ID == s.ID || len(fork.ConfigOptions) != 1 {
		t.Fatalf("session/fork: %+v, %v", fork, err)
	}
	a.say(fork, "[[SAY two]]")
	if one, other := a.say(s, "[[HISTORY]]"), a.say(fork, "[[HISTORY]]"); one != `earlier turns: 1 ["one"]` || other != `earlier turns: 2 ["one","two"]` {
		t.Errorf("histories: %s, %s", one, other)
	}
	listed := func(cwd string) (ids []string) {
		t.Helper()
		sessions, next, err := a.ListSessions(testContext(t), cwd, "")
		if err != nil || next != "" {
			t.Errorf("session/list: %q, %v", next, err)
		}
		for _, one := range sessions {
			if one.Cwd != a.cwd {
				t.Errorf("got %+v", one)
			}
			ids = append(ids, one.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if got := listed(a.cwd); !slices.Equal(got, []string{s.ID, fork.ID}) || listed("/elsewhere") != nil {
		t.Errorf("listed: %v", got)
	}
	if err := a.DeleteSession(testContext(t), s.ID); err != nil {
		t.Error(err)
	}
	if got := listed(""); !slices.Equal(got, []string{fork.ID}) {
		t.Errorf("listed: %v", got)
	}
	var refused *AgentError
	if _, err := a.ForkSession(testContext(t), s.ID, params); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
}

func TestValuesOfAnOption(t *testing.T) {
	for options, want := range map[string][]string{
		`[{"value":"a","name":"A"},{"value":"b"}]`:                                          {"a", "b"},
		`[{"group":"x","options":[{"value":"a"}]},{"group":"y","options":[{"value":"b"}]}]`: {"a", "b"},
		`null`: nil, `{}`: nil, ``: nil, `[1]`: nil,
	} {
		if got := (ConfigOption{Options: []byte(options)}).Values(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q", options, got)
		}
	}
}

func TestAgentUsesTheServersThatItWasGiven(t *testing.T) {
	server := toolServer("http")
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close) // after the agent has ended
	events := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return toolServer("sse") }, nil))
	t.Cleanup(events.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, "", "", Options{}, "-ask")
	s := a.open(
		MCPServer{Name: "local", Transport: TransportStdio, Command: self, Env: []KeyValue{{roleVariable, "mcp"}, {"TOLD", " with env"}}},
		MCPServer{Name: "web", Transport: TransportHTTP, URL: web.URL, Headers: []KeyValue{{"X-Told", "with header"}}},
		MCPServer{Name: "events", Transport: TransportSSE, URL: events.URL},
		MCPServer{Name: "dead", Transport: TransportStdio, Command: "/no/such/program"},
	)
	var calls ToolCalls
	a.client.onUpdate = func(u Update) { calls.Apply(u) }
	if got := a.say(s, `[[CALL local.echo {"text":"a]]b"}]]`); got != "stdio with env: a]]b" {
		t.Errorf("got %q", got)
	}
	if got := a.say(s, `[[CALL web.echo {"text":"b"}]]`); got != "with header: b" {
		t.Errorf("got %q", got)
	}
	if got := a.say(s, `[[CALL events.echo {"text":"c"}]]`); got != ": c" && got != "sse: c" {
		t.Errorf("got %q", got)
	}
	if got := a.say(s, `[[CALL dead.echo {"text":"d"}]]`); !strings.HasPrefix(got, "MCP server dead: ") {
		t.Errorf("got %q", got)
	}
	all := calls.All()
	if len(all) != 4 || all[0].Status != ToolCompleted || string(all[0].RawInput) != `{"text":"a]]b"}` || !strings.Contains(string(all[0].RawOutput), "stdio with env") {
		t.Fatalf("got %+v", all)
	}
	if dead := all[3]; dead.Status != ToolFailed || dead.Title != "dead.echo" {
		t.Errorf("got %+v", dead)
	}
	if got := a.client.asked; len(got) != 4 || got[1].ToolCall.Title != "web.echo" || string(got[1].ToolCall.RawInput) != `{"text":"b"}` {
		t.Errorf("asked for %+v", got)
	}
}

func TestPermissions(t *testing.T) {
	a := startAgent(t, "", "", Options{})
	s := a.open()
	if got := a.say(s, `[[ASK execute rm -rf {"path":"/"}]]`); got != "allowed" {
		t.Errorf("got %q", got)
	}
	a.client.permit = func(_ context.Context, r PermissionRequest) (PermissionOutcome, error) { return Deny(r.Options), nil }
	if got := a.say(s, `[[ASK execute rm -rf {"path":"/"}]][[SAY , then]]`); got != "rejected, then" {
		t.Errorf("got %q", got)
	}
	if r := a.client.asked[1]; r.ToolCall.Kind != "execute" || r.ToolCall.Title != "rm -rf" || string(r.ToolCall.RawInput) != `{"path":"/"}` {
		t.Errorf("asked for %+v", r)
	}
	// A turn that is cancelled while a permission is asked for.
	asked := make(chan struct{})
	a.client.permit = func(ctx context.Context, _ PermissionRequest) (PermissionOutcome, error) {
		close(asked)
		<-ctx.Done()
		return PermissionOutcome{}, ctx.Err()
	}
	turn := background(func() PromptResult {
		result, err := a.Prompt(testContext(t), s.ID, Text("[[ASK edit file]][[SAY never]]"))
		if err != nil {
			t.Error(err)
		}
		return result
	})
	testenv.Receive(t, asked)
	if err := a.Cancel(testContext(t), s.ID); err != nil {
		t.Error(err)
	}
	if result := testenv.Receive(t, turn); result.StopReason != StopCancelled || strings.Contains(a.client.text(), "never") {
		t.Errorf("got %+v, %q", result, a.client.text())
	}
	if got := a.say(s, "[[SAY and on]]"); got != "and on" {
		t.Errorf("got %q", got)
	}
}

func TestFaultsOfAnAgent(t *testing.T) {
	testenv.NeedSlow(t)
	// phase runs a conversation up to the first call that fails, and returns its name.
	phase := func(a *agentProcess, ctx context.Context, prompt string) (string, error) {
		if _, err := a.Initialize(ctx, Implementation{}); err != nil {
			return "initialize", err
		}
		s, err := a.NewSession(ctx, SessionParams{Cwd: a.cwd})
		if err != nil {
			return "session/new", err
		}
		if _, err = a.Prompt(ctx, s.ID, Text(prompt)); err != nil {
			return "session/prompt", err
		}
		return "", nil
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for _, v := range []struct {
		fault, prompt, phase string
		check                func(error) bool
	}{
		{"die:initialize", "", "initialize", is(ErrClosed)},
		{"die:session/new", "", "session/new", is(ErrClosed)},
		{"die:prompt", "", "session/prompt", is(ErrClosed)},
		{"", "[[SAY a]][[FAULT die:prompt]]", "session/prompt", is(ErrClosed)},
		{"die:mid-update", "", "session/prompt", is(ErrClosed)},
		{"longline:2000000", "", "session/prompt", is(ErrLineTooLong)},
		{"hang:initialize", "", "initialize", is(context.DeadlineExceeded)},
		{"hang:session/new", "", "session/new", is(context.DeadlineExceeded)},
		{"hang:prompt", "", "session/prompt", is(context.DeadlineExceeded)},
		{"error:429", "", "session/prompt", func(err error) bool {
			var e *AgentError
			return errors.As(err, &e) && e.Code == 429 && string(e.Data) == `{"errorKind":"requested"}`
		}},
		{`answer:initialize={"protocolVersion":2}`, "", "initialize", func(err error) bool { return errors.As(err, new(*ProtocolError)) }},
		{`answer:session/new={}`, "", "session/new", func(err error) bool { return errors.As(err, new(*ProtocolError)) }},
		{`answer:session/new=[]`, "", "session/new", func(err error) bool { return errors.As(err, new(*ProtocolError)) }},
		{`noresult:session/prompt`, "", "session/prompt", func(err error) bool { return errors.As(err, new(*ProtocolError)) }},
		{"garbage", "x", "", is(nil)},
		{"glue", "x", "", is(nil)},
		{"", "[[FAULT garbage]][[SAY x]]", "", is(nil)},
		{"unknown-update;flood:1000", "x", "", is(nil)},
	} {
		t.Run(v.fault+v.prompt, func(t *testing.T) {
			a := startAgent(t, "", v.fault, Options{MaxLine: 1 << 20})
			limit := 30 * time.Second
			if strings.HasPrefix(v.fault, "hang") {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			at, err := phase(a, ctx, v.prompt)
			if at != v.phase || !v.check(err) {
				t.Errorf("got %q: %v", at, err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), v.phase+": ") {
				t.Errorf("the error does not begin with the method: %v", err)
			}
		})
	}
}

func TestWhatAnAgentSendsBesidesIsRecorded(t *testing.T) {
	a := startAgent(t, "", "garbage;glue", Options{})
	s := a.open()
	text := a.say(s, "[[SAY one]][[SAY two]][[FAULT unknown-update]][[FAULT unknown-request]][[FAULT flood:3]]")
	if !strings.HasPrefix(text, "onetwo") || !strings.Contains(text, `"code":-32601`) || !strings.Contains(text, "craft/drainMidTurnQueue") {
		t.Errorf("got %q", text)
	}
	if !a.recorded("< ", "_vendor/tea_break", `"minutes":5`) || !a.recorded("< ", "_auth/status_update") || !a.recorded("< Starting up...") {
		t.Error("not all was recorded")
	}
	if !slices.ContainsFunc(a.client.updates, func(u Update) bool { return u.Kind == "_vendor/tea_break" }) {
		t.Error("an update of an unknown kind was not handed on")
	}
	if glued := slices.ContainsFunc(a.client.lines, func(line string) bool { return strings.Count(line, `"jsonrpc"`) == 2 }); !glued {
		t.Error("the agent did not glue lines")
	}
	if !slices.Contains(a.client.noise, "Starting up...") || slices.ContainsFunc(a.client.noise, func(s string) bool { return strings.Contains(s, "method") }) {
		t.Errorf("noise: %q", a.client.noise)
	}
}

func TestFloodIsHandledInOrder(t *testing.T) {
	testenv.NeedSlow(t)
	const n = 50_000
	a := startAgent(t, "", "", Options{})
	s := a.open()
	a.say(s, "[[FAULT flood:"+strconv.Itoa(n)+"]]")
	next := 0
	for _, u := range a.client.updates {
		if text, ok := u.Text(); ok {
			if got, err := strconv.Atoi(text); err != nil || got != next {
				t.Fatalf("update %d is %q", next, text)
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d updates", next)
	}
}

func TestEndOfAnAgent(t *testing.T) {
	t.Run("at the end of its stdin", func(t *testing.T) {
		a := startAgent(t, "", "", Options{})
		a.open()
		if a.Close(); !a.endsWithin(30 * time.Second) {
			t.Error("it did not end")
		}
		a.Wait()
	})
	t.Run("not without SIGTERM", func(t *testing.T) {
		a := startAgent(t, "", "", Options{})
		a.say(a.open(), "[[FAULT ignore-eof]]")
		if a.Close(); a.endsWithin(200 * time.Millisecond) {
			t.Error("it ended with its stdin")
		}
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		if !a.endsWithin(30 * time.Second) {
			t.Error("it ignored SIGTERM")
		}
	})
	t.Run("not without SIGKILL", func(t *testing.T) {
		a := startAgent(t, "", "ignore-eof;ignore-term", Options{})
		a.open()
		a.Close()
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		if a.endsWithin(200 * time.Millisecond) {
			t.Error("it did not ignore SIGTERM")
		}
		a.kill()
	})
	t.Run("and its orphan stays", func(t *testing.T) {
		a := startAgent(t, "", "", Options{})
		pid, err := strconv.Atoi(strings.TrimPrefix(a.say(a.open(), "[[FAULT orphan]]"), "orphan "))
		if err != nil {
			t.Fatal(err)
		}
		a.kill()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("the orphan is gone: %v", err)
		}
	})
}
