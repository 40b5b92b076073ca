package agent

import (
	stdcmp "cmp"
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/acp"
)

func TestTrajectory(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	trail := openTrajectory(dir, nil, func() time.Time { return at })
	trail.say(EventMessage, "s", "one ")
	trail.say(EventMessage, "s", "two")
	trail.say(EventThought, "s", "hm")
	trail.say(EventMessage, "other", "three")
	ms := int64(1500)
	call := func(c Call) { trail.call("s", c); trail.span(c) }
	call(Call{ID: "c", Name: "add", Server: "lab", Status: "completed", Input: json.RawMessage(`{"a":1}`), StartedAt: at, DurationMs: &ms,
		Content: json.RawMessage(`[{"type":"content","content":{"type":"text","text":"4"}},{"type":"content","content":{"type":"text","text":"2"}}]`)})
	trail.say(EventMessage, "s", "last")
	if got := trail.lastMessage(); got != "last" {
		t.Errorf("got %q", got)
	}
	call(Call{ID: "d", Name: "look", Status: "failed", StartedAt: at, Output: json.RawMessage(`"no"`), DurationMs: new(int64)})
	call(Call{ID: "e", Name: "wait", Status: "in_progress", StartedAt: at})
	trail.add(EventStop, "s", "", map[string]string{"stopReason": "end_turn"})
	if err := trail.close(); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, e := range readLines[Event](t, dir, FileTrajectory) {
		text := e.Type + " " + e.SessionID + " " + e.Text
		if e.Call != nil {
			text += e.Call.ID + " " + e.Call.text()
		}
		got = append(got, text+string(e.Data))
	}
	want := []string{"message s one two", "thought s hm", "message other three", "tool_call s c 42", "message s last", "tool_call s d no", "tool_call s e ", `stop s {"stopReason":"end_turn"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantSpans := []string{
		`{"attributes":{"input.value":"{\"a\":1}","mcp.server":"lab","output.value":{"content":"42"},"tool.call_id":"c","tool.name":"add"},"end_time":"2026-01-02T03:04:06.5Z","name":"add","start_time":"2026-01-02T03:04:05Z","status":"ok"}`,
		`{"attributes":{"input.value":"{}","output.value":{"content":"no"},"tool.call_id":"d","tool.name":"look"},"end_time":"2026-01-02T03:04:05Z","name":"look","start_time":"2026-01-02T03:04:05Z","status":"error"}`,
		`{"attributes":{"input.value":"{}","tool.call_id":"e","tool.name":"wait"},"name":"wait","start_time":"2026-01-02T03:04:05Z"}`,
	}
	var spans []string
	for _, raw := range readLines[json.RawMessage](t, dir, FileTrace) {
		spans = append(spans, string(raw))
	}
	if diff := cmp.Diff(wantSpans, spans); diff != "" {
		t.Error(diff)
	}
}

func TestATrajectoryIsWrittenByTwo(t *testing.T) {
	dir := t.TempDir()
	trail := openTrajectory(dir, redacting("a-secret-word"), time.Now)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range 1000 {
				trail.say(EventMessage, "s", "with a-secret-word")
				trail.add(EventPlan, "s", "", nil)
			}
		})
	}
	both.Wait()
	if err := trail.close(); err != nil {
		t.Fatal(err)
	}
	if n := len(readLines[Event](t, dir, FileTrajectory)); n < 3000 || n > 4000 {
		t.Errorf("%d events", n)
	}
}

func TestATrajectoryThatCannotBeWritten(t *testing.T) {
	trail := openTrajectory(filepath.Join(t.TempDir(), "missing"), nil, time.Now)
	trail.add(EventPrompt, "s", "x", nil)
	if trail.close() == nil {
		t.Error("nobody was told")
	}
}

func TestToolNames(t *testing.T) {
	servers := []acp.MCPServer{{Name: "lab"}, {Name: "lab_two"}, {Name: "my-lab"}}
	for _, tt := range []struct {
		form         string
		call         acp.ToolCall
		name, server string
	}{
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "mcp__lab__add"}, "add", "lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "Add numbers", Name: "mcp__my-lab__add"}, "add", "my-lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "Add numbers", Meta: json.RawMessage(`{"x":1,"claudeCode":{"toolName":"mcp__lab__add"}}`)}, "add", "lab"},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_add"}, "add", "lab"},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_two_add"}, "add", "lab_two"},
		{"mcp_{server}_{tool}", acp.ToolCall{Title: "mcp_lab_add_more"}, "add_more", "lab"},
		{"mcp_{server}_{tool}", acp.ToolCall{Title: "add (lab MCP Server)"}, "add", "lab"},
		{"", acp.ToolCall{Title: "add (my-lab MCP Server)"}, "add", "my-lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "lab.add"}, "add", "lab"},
		{"", acp.ToolCall{Title: "my-lab/add"}, "add", "my-lab"},
		{"", acp.ToolCall{Title: "lab.add two numbers"}, "lab.add two numbers", ""},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_"}, "lab_", ""},
		{"{server}_{tool}", acp.ToolCall{Title: "other_add"}, "other_add", ""},
		{"{tool}", acp.ToolCall{Title: "Read"}, "Read", ""},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "`ls`", Kind: "execute", Meta: json.RawMessage(`{"claudeCode":{"toolName":"Bash"}}`)}, "Bash", ""},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: `{"id":"7"}`, Meta: json.RawMessage(`{"toolName":"mcp__lab__read"}`)}, "read", "lab"},                           // A1: qwen
		{"", acp.ToolCall{Title: "mcp.lab.read", Kind: "execute", RawInput: json.RawMessage(`{"server":"lab","tool":"read","arguments":{"id":"7"}}`)}, "read", "lab"}, // A2: codex
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "mcp__lab__read", Name: "Bash"}, "Bash", ""},                                                                    // what a command looks like is no name
		{"", acp.ToolCall{Kind: "fetch"}, "fetch", ""},
		{"", acp.ToolCall{Title: "Read", Meta: json.RawMessage(`[1]`)}, "Read", ""},
	} {
		s := &acpSegment{acpAgent: &acpAgent{entry: Entry{ACP: &ACP{ToolName: tt.form}}}, servers: servers}
		told := s.toolOf(&tt.call, "")
		if name := stdcmp.Or(told.Name, tt.call.Title, tt.call.Kind); name != tt.name || told.Server != tt.server {
			t.Errorf("%s of %+v: got %q of %q", tt.form, tt.call, name, told.Server)
		}
	}
}
