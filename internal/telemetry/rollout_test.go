package telemetry

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

const rolloutID = "0a1b2c3d-0a1b-5c3d-8e4f-0123456789ab"

var began = time.Unix(1_000_000, 0)

// newBuilder makes the builder of a rollout that failed once and then completed, and whose agent
// has left these spans in the second attempt.
func newBuilder(t *testing.T, content bool, spans ...string) *builder {
	b := &builder{run: Run{Redact: redact.New(map[string]string{"KEY": "open-sesame"})}, storeDir: t.TempDir(), content: content}
	b.rv.Rollout = store.Rollout{ID: rolloutID, RunID: "r", EvaluationID: "e", EvaluationName: "E", Agent: "a", Epoch: 1, State: eval.StateCompleted, CreatedAt: began, Segment: 1, Attempt: 2}
	b.rv.Segments = []store.Segment{
		{Number: 1, Attempt: 1, Outcome: store.OutcomeFailed, StartedAt: began, EndedAt: began.Add(time.Second), Fault: fault.New(fault.Exit, "it failed with open-sesame\nand printed this")},
		{Number: 1, Attempt: 2, Outcome: store.OutcomeCompleted, StartedAt: began.Add(2 * time.Second), EndedAt: began.Add(5 * time.Second), Files: []store.File{{Name: record.FileTrace}}},
	}
	dir := files.Store(b.storeDir).Run("r").Rollout(rolloutID).Segment(1, 2)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, record.FileTrace), []byte(strings.Join(spans, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func event(typ store.EventType, data string) store.Event {
	return store.Event{Type: typ, RolloutID: rolloutID, Data: json.RawMessage(data), Time: began.Add(time.Minute)}
}

func (b *builder) named(t *testing.T) map[string]*trace.Span {
	t.Helper()
	out := map[string]*trace.Span{}
	for _, s := range b.spans {
		if out[s.Name] != nil {
			t.Errorf("%s is there twice", s.Name)
		}
		out[s.Name] = s
	}
	return out
}

func attributesOf(s *trace.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			out[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return out
}

// Each spelling of a span that evaluators read is sent, below its parent or its segment.
func TestSpansOfAgents(t *testing.T) {
	b := newBuilder(t, false,
		`{"name":"model","context":{"trace_id":"0x1","span_id":"0xa"},"start_time":"2026-01-02T03:04:05Z","end_time":"2026-01-02T03:04:06.5Z","attributes":{"gen_ai.usage.input_tokens":7,"gen_ai.input.messages":"private","other":"private","gen_ai.operation.name":"chat"}}`,
		`{"name":"inner","context":{"trace_id":"0x1","span_id":"0xb"},"parent_id":"0xa","attributes":{"tool.name":"look","tool.call_id":"c1","input.value":"private","gen_ai.response.id":"open-sesame"},"status":{"status_code":"ERROR"}}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"otlp","traceId":"02","spanId":"0b","startTimeUnixNano":"1000000000","endTimeUnixNano":2000000000,"status":{"code":2},"attributes":[{"key":"tool.name","value":{"stringValue":"find"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"3"}}]}]}]}]}`,
		`{"torn`)
	if err := b.add(event(store.RolloutFinished, `{"state":"completed"}`)); err != nil {
		t.Fatal(err)
	}
	all := b.named(t)
	want := []string{"execute_tool find", "execute_tool look", "invoke_agent a", "model", "rollout E"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("the spans are %q, expected %q", got, want)
	}
	for name, parent := range map[string]string{"model": "invoke_agent a", "execute_tool look": "model", "execute_tool find": "invoke_agent a", "invoke_agent a": "rollout E"} {
		if string(all[name].ParentSpanId) != string(all[parent].SpanId) {
			t.Errorf("%s is not below %s", name, parent)
		}
	}
	for name, took := range map[string]time.Duration{"model": 1500 * time.Millisecond, "execute_tool find": time.Second, "execute_tool look": 0, "invoke_agent a": 3 * time.Second, "rollout E": time.Minute} {
		if got := time.Duration(all[name].EndTimeUnixNano - all[name].StartTimeUnixNano); got != took {
			t.Errorf("%s took %v, expected %v", name, got, took)
		}
	}
	for name, failed := range map[string]bool{"model": false, "execute_tool look": true, "execute_tool find": true} {
		if got := all[name].Status.GetCode() == trace.Status_STATUS_CODE_ERROR; got != failed {
			t.Errorf("%s failed: %v", name, got)
		}
	}
	if got := attributesOf(all["execute_tool look"]); !maps.Equal(got, map[string]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1", "gen_ai.response.id": "[redacted:KEY]"}) {
		t.Errorf("look has %q", got)
	}
	if got := attributesOf(all["model"]); !maps.Equal(got, map[string]string{"gen_ai.usage.input_tokens": "7", "gen_ai.operation.name": "chat"}) {
		t.Errorf("model has %q", got)
	}

	again := newBuilder(t, true, `{"name":"x","attributes":{"tool.name":"look","input.value":"private","other":[1]}}`)
	if err := again.add(event(store.RolloutFinished, `{"state":"completed"}`)); err != nil {
		t.Fatal(err)
	}
	if got := attributesOf(again.named(t)["execute_tool look"]); got["gen_ai.tool.call.arguments"] != "private" || got["other"] != "[1]" {
		t.Errorf("with content it has %q", got)
	}
}

// A failed attempt is told when it is repeated, with the first line of what went wrong.
func TestAnAttemptThatFailed(t *testing.T) {
	b := newBuilder(t, true)
	if err := b.add(event(store.RolloutRetried, `{"segment":1,"attempt":2}`)); err != nil {
		t.Fatal(err)
	}
	s := b.named(t)["invoke_agent a"]
	if len(b.spans) != 1 || s.Status.Message != "it failed with [redacted:KEY]" || attributesOf(s)["error.type"] != "exit" || attributesOf(s)["evalrun.attempt"] != "1" {
		t.Errorf("the spans are %v", b.spans)
	}
}

// Evaluators follow each other from the agent's end on; the questions to judges are below them.
func TestEvaluatorsAndJudges(t *testing.T) {
	b := newBuilder(t, false)
	score, cost := 0.5, 0.25
	first, _ := json.Marshal([]eval.Result{{EvaluatorID: "j", EvaluatorName: "Judge", Score: &score, Details: json.RawMessage(`"private"`), Duration: 2 * time.Second,
		Judge: &eval.Judged{Verdicts: []eval.JudgeCall{{Provider: "openai", Model: "m", Score: &score, LatencyMs: 1500, Usage: &eval.Usage{InputTokens: 11, OutputTokens: 3, Cost: &cost}}}}}})
	second, _ := json.Marshal([]eval.Result{{EvaluatorID: "x", EvaluatorName: "Broken", Error: "no open-sesame\nhere", ErrorCategory: eval.JudgeTimeout, Duration: time.Second}})
	b.rv.Results = []store.Result{{EvaluatorID: "j", Data: first}, {EvaluatorID: "x", Data: second}}
	if err := b.add(event(store.RolloutFinished, `{"state":"completed"}`)); err != nil {
		t.Fatal(err)
	}
	all := b.named(t)
	judge, broken, chat, segment := all["evaluate Judge"], all["evaluate Broken"], all["chat m"], all["invoke_agent a"]
	if judge.StartTimeUnixNano != segment.EndTimeUnixNano || broken.StartTimeUnixNano != judge.EndTimeUnixNano || judge.EndTimeUnixNano-judge.StartTimeUnixNano != 2_000_000_000 {
		t.Errorf("the evaluators are %v and %v", judge, broken)
	}
	if string(judge.Links[0].SpanId) != string(segment.SpanId) || string(chat.ParentSpanId) != string(judge.SpanId) || chat.EndTimeUnixNano-chat.StartTimeUnixNano != 1_500_000_000 {
		t.Errorf("the judge is %v, its question %v", judge, chat)
	}
	if a := attributesOf(judge); a["gen_ai.evaluation.score.value"] != "0.5" || a["gen_ai.evaluation.name"] != "Judge" || a["gen_ai.evaluation.explanation"] != "" {
		t.Errorf("the judge has %q", a)
	}
	if a := attributesOf(chat); a["gen_ai.provider.name"] != "openai" || a["gen_ai.usage.input_tokens"] != "11" {
		t.Errorf("the question has %q", a)
	}
	if a := attributesOf(broken); a["gen_ai.evaluation.score.value"] != "" || a["error.type"] != "judge-timeout" || broken.Status.Message != "no [redacted:KEY]" {
		t.Errorf("the broken one has %q, %v", a, broken.Status)
	}
}

// Whatever an agent leaves as its trace, nothing panics, and every span has ids and an end that is
// not before its beginning.
func FuzzSpansOfAgents(f *testing.F) {
	f.Add(`{"name":"x","context":{"span_id":"1"},"parent_id":"1","start_time":1,"end_time":"x","attributes":[{"key":"a","value":{"arrayValue":{}}}]}`)
	f.Add(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"resourceSpans":[]}]}]}],"status":[]}`)
	f.Add(`{"attributes":{"tool.name":1,"gen_ai.x":{"a":null}}}`)
	f.Fuzz(func(t *testing.T, line string) {
		b := &builder{content: true}
		under := &trace.Span{TraceId: make([]byte, 16), SpanId: make([]byte, 8)}
		b.agentSpans([]json.RawMessage{json.RawMessage(line)}, under, began)
		for _, s := range b.spans {
			if len(s.SpanId) != 8 || len(s.ParentSpanId) != 8 || s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s: %v", line, s)
			}
		}
	})
}
