package record

import (
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestTrajectory(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	trail := OpenTrajectory(dir, nil, func() time.Time { return at })
	trail.Say(EventMessage, "s", "one ")
	trail.Say(EventMessage, "s", "two")
	trail.Say(EventThought, "s", "hm")
	trail.Say(EventMessage, "other", "three")
	ms := int64(1500)
	call := func(c Call) { trail.Call("s", c); trail.Span(c) }
	call(Call{ID: "c", Name: "add", Server: "lab", Status: "completed", Input: json.RawMessage(`{"a":1}`), StartedAt: at, DurationMs: &ms,
		Content: json.RawMessage(`[{"type":"content","content":{"type":"text","text":"4"}},{"type":"content","content":{"type":"text","text":"2"}}]`)})
	trail.Say(EventMessage, "s", "last")
	if got := trail.LastMessage(); got != "last" {
		t.Errorf("got %q", got)
	}
	call(Call{ID: "d", Name: "look", Status: "failed", StartedAt: at, Output: json.RawMessage(`"no"`), DurationMs: new(int64)})
	call(Call{ID: "e", Name: "wait", Status: "in_progress", StartedAt: at})
	trail.Add(EventStop, "s", "", map[string]string{"stopReason": "end_turn"})
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, e := range testenv.ReadLines[Event](t, dir, FileTrajectory) {
		text := e.Type + " " + e.SessionID + " " + e.Text
		if e.Call != nil {
			text += e.Call.ID + " " + e.Call.Text()
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
	for _, raw := range testenv.ReadLines[json.RawMessage](t, dir, FileTrace) {
		spans = append(spans, string(raw))
	}
	if diff := cmp.Diff(wantSpans, spans); diff != "" {
		t.Error(diff)
	}
}

func TestATrajectoryIsWrittenByTwo(t *testing.T) {
	dir := t.TempDir()
	trail := OpenTrajectory(dir, redact.New(map[string]string{"SECRET": "a-secret-word"}).Writer, time.Now)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range 1000 {
				trail.Say(EventMessage, "s", "with a-secret-word")
				trail.Add(EventPlan, "s", "", nil)
			}
		})
	}
	both.Wait()
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(testenv.ReadLines[Event](t, dir, FileTrajectory)); n < 3000 || n > 4000 {
		t.Errorf("%d events", n)
	}
}

func TestATrajectoryThatCannotBeWritten(t *testing.T) {
	trail := OpenTrajectory(filepath.Join(t.TempDir(), "missing"), nil, time.Now)
	trail.Add(EventPrompt, "s", "x", nil)
	if trail.Close() == nil {
		t.Error("nobody was told")
	}
}
