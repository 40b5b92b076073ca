package runner_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/peers/fakecollector"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// tracedAgent leaves a span in each segment, and asks a person in the first. Its key is a secret.
const tracedAgent = `in=$(cat)
span() { printf '{"name":"%s","context":{"trace_id":"0xaa","span_id":"0x01"},"start_time":"2026-01-02T03:04:05Z","end_time":"2026-01-02T03:04:06Z","attributes":{"tool.name":"%s","tool.call_id":"c1","input.value":"{\\"key\\":\\"%s\\"}","output.value":"private","gen_ai.request.model":"%s","gen_ai.conversation.id":"%s"}}\n' "$1" "$1" "$KEY" "$KEY" "$TRACEPARENT" >>"$EVALRUN_TRACE_FILE"; }
case "$in" in
*'"resume":null'*) span look; printf '{"__interrupt__":{"id":"may-i","value":{"title":"May I?"}},"__usage__":{"model":"m","inputTokens":10,"outputTokens":2}}' ;;
*) span add; printf '{"sum":3,"__usage__":{"model":"m","inputTokens":5,"outputTokens":1}}' ;;
esac`

const secret = "open-sesame-and-more"

// traced is a run of tracedAgent in a folder of its own, with a collector beside it.
type traced struct {
	t         *testing.T
	dir       string
	runID     string
	collector *fakecollector.Collector
	url       string
	said      []string
	// heard is told what said gets; nil if nobody needs it.
	heard func(text string)
}

func newTraced(t *testing.T) *traced {
	dir := t.TempDir()
	agent := fmt.Sprintf(`{"type":"function","name":"adder","command":["sh","-c",%q],"env":{"KEY":"${KEY}"}}`, tracedAgent)
	for name, text := range map[string]string{"agent.json": agent, "set.json": `{"version":"1.0","id":"sums","name":"Sums",
		"evaluators":[{"id":"exact","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"targetOutputKey":"sum"}}],
		"evaluations":[{"id":"small","name":"Small numbers","inputs":{"a":1,"b":2},"evaluationCriterias":{"exact":{"expectedOutput":{"sum":3}}}}]}`} {
		check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("KEY", secret)
	v, err := runner.ReadVariables([]string{"KEY"}, nil)
	check(err)
	set, err := runner.Load([]string{filepath.Join(dir, "set.json")}, runner.LoadOptions{Agents: []string{filepath.Join(dir, "agent.json")}, Variables: v})
	check(err)
	x := &traced{t: t, dir: dir, collector: &fakecollector.Collector{}}
	x.with(func(s *runner.Store) {
		run, err := s.Create(t.Context(), set, runner.CreateOptions{})
		check(err)
		x.runID = run.RunID
	})
	server := httptest.NewServer(x.collector)
	t.Cleanup(server.Close)
	x.url = server.URL
	return x
}

// with opens the store as a process of its own would.
func (x *traced) with(f func(*runner.Store)) {
	s, err := runner.Open(filepath.Join(x.dir, "store"), runner.OpenOptions{Version: "1.2.3"})
	check(err)
	defer func() { check(s.Close()) }()
	f(s)
}

// work works on the run as one command would.
func (x *traced) work(content bool) {
	telemetry, err := runner.ParseTelemetry(x.url, content, os.LookupEnv)
	check(err)
	v, err := runner.ReadVariables([]string{"KEY"}, nil)
	check(err)
	x.with(func(s *runner.Store) {
		_, err := s.Resume(x.t.Context(), x.runID, runner.RunOptions{Document: filepath.Join(x.dir, "results.json"),
			Options: runner.Options{Telemetry: telemetry, Variables: v, Notice: x.notice}})
		check(err)
	})
}

func (x *traced) notice(text string) {
	x.said = append(x.said, text)
	if x.heard != nil {
		x.heard(text)
	}
}

func (x *traced) answer() {
	x.with(func(s *runner.Store) {
		_, err := s.Deliver(x.t.Context(), waiting(s, x.runID).TriggerID, runner.Delivery{Payload: json.RawMessage(`true`), By: "approve"})
		check(err)
	})
}

// spans are those that the collector has, by name, with how often each has come.
func (x *traced) spans() (byName map[string]fakecollector.Span, times map[string]int) {
	byName, times = map[string]fakecollector.Span{}, map[string]int{}
	for _, s := range x.collector.Spans() {
		name := s.Name
		if n := attribute(s, "evalrun.segment"); n != "" {
			name += " " + n
		}
		byName[name] = s
		times[name]++
	}
	return byName, times
}

func attribute(s fakecollector.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			if text := a.Value.GetStringValue(); text != "" {
				return text
			}
			if d := a.Value.GetDoubleValue(); d != 0 {
				return fmt.Sprint(d)
			}
			return fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return ""
}

func took(s fakecollector.Span) time.Duration {
	return time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano)
}

func (x *traced) rollout() (out schemas.Rollout) {
	data, err := os.ReadFile(filepath.Join(x.dir, "results.json"))
	check(err)
	var doc schemas.Results
	check(json.Unmarshal(data, &doc))
	return doc.EvaluationSetResults[0]
}

// Given a rollout that suspends in one process and is resumed in another: then the collector gets
// one trace, whose parts are linked and took as long as the results document says, every span once.
func TestATraceOverTwoProcesses(t *testing.T) {
	x := newTraced(t)
	x.work(false)
	spans, _ := x.spans()
	if len(spans) != 2 || attribute(spans["invoke_agent adder 1"], "evalrun.outcome") != "suspended" || spans["execute_tool look"].Span == nil {
		t.Fatalf("while it is suspended the collector has %v", spans)
	}
	x.answer()
	x.work(false)
	spans, times := x.spans()
	for _, name := range []string{"invoke_agent adder 1", "execute_tool look", "wait API", "invoke_agent adder 2", "execute_tool add", "evaluate exact", "rollout Small numbers"} {
		if times[name] != 1 {
			t.Errorf("%s has come %d times", name, times[name])
		}
	}
	if len(times) != 7 || t.Failed() {
		t.Fatalf("the collector has %v", times)
	}

	one := x.rollout()
	root := spans["rollout Small numbers"]
	traceID := strings.ReplaceAll(one.RolloutID, "-", "")
	for name, s := range spans {
		if hex.EncodeToString(s.TraceId) != traceID {
			t.Errorf("%s is in trace %x, not %s", name, s.TraceId, traceID)
		}
		if s.Resource["service.name"] != "evalrun" || s.Resource["service.version"] != "1.2.3" {
			t.Errorf("%s comes from %v", name, s.Resource)
		}
		want := string(root.SpanId)
		switch name {
		case "rollout Small numbers":
			want = ""
		case "execute_tool look":
			want = string(spans["invoke_agent adder 1"].SpanId)
		case "execute_tool add":
			want = string(spans["invoke_agent adder 2"].SpanId)
		}
		if string(s.ParentSpanId) != want {
			t.Errorf("%s is below %x, not %x", name, s.ParentSpanId, want)
		}
	}
	links := spans["invoke_agent adder 2"].Links
	if len(links) != 2 || string(links[0].SpanId) != string(spans["invoke_agent adder 1"].SpanId) || string(links[1].SpanId) != string(spans["wait API"].SpanId) {
		t.Errorf("the second segment has the links %v", links)
	}
	// A job that the trigger had started would have had this span as its parent.
	job := wait.Job{RolloutID: one.RolloutID, TriggerID: attribute(spans["wait API"], "evalrun.trigger.id")}
	if got := fmt.Sprintf("00-%s-%x-01", traceID, spans["wait API"].SpanId); got != job.Traceparent() {
		t.Errorf("the wait is %s, its job was given %s", got, job.Traceparent())
	}

	if got, want := attribute(spans["execute_tool add"], "gen_ai.conversation.id"), fmt.Sprintf("00-%s-%x-01", traceID, spans["invoke_agent adder 2"].SpanId); got != want {
		t.Errorf("the second segment's agent was told the parent %s, not %s", got, want)
	}

	working := took(spans["invoke_agent adder 1"]) + took(spans["invoke_agent adder 2"])
	if working.Milliseconds() != one.Clocks.WorkingMs {
		t.Errorf("the segments took %v, the document says %d ms", working, one.Clocks.WorkingMs)
	}
	if d := took(root).Milliseconds() - one.Clocks.WallMs; d < 0 || d > 3 { // of the four clocks each is rounded down
		t.Errorf("the rollout took %v, the document says %d ms", took(root), one.Clocks.WallMs)
	}
	if got := took(spans["evaluate exact"]).Seconds(); got != one.EvaluationRunResults[0].Result.EvaluationTime {
		t.Errorf("the evaluator took %v s, the document says %v", got, one.EvaluationRunResults[0].Result.EvaluationTime)
	}
	for key, want := range map[string]string{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "adder", "gen_ai.usage.input_tokens": "5", "evalrun.rollout.id": one.RolloutID} {
		if got := attribute(spans["invoke_agent adder 2"], key); got != want {
			t.Errorf("%s of the second segment is %q, not %q", key, got, want)
		}
	}
	if got := attribute(spans["evaluate exact"], "gen_ai.evaluation.score.value"); got != "1" {
		t.Errorf("the score is %q", got)
	}
	if x.said != nil {
		t.Errorf("it said %q", x.said)
	}

	// Nothing is sent again by a third process, and without the file that says what was sent
	// everything is, with the same ids.
	before := len(x.collector.Spans())
	x.work(false)
	if got := len(x.collector.Spans()); got != before {
		t.Errorf("%d spans were sent again", got-before)
	}
	logs, err := filepath.Glob(filepath.Join(x.dir, "store", "runs", x.runID, "otlp-*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	check(os.Remove(logs[0]))
	x.work(false)
	ids := map[string]bool{}
	for _, s := range x.collector.Spans() {
		ids[string(s.SpanId)] = true
	}
	if got := len(x.collector.Spans()); got != 2*before || len(ids) != before {
		t.Errorf("%d spans with %d ids after everything was sent again", got, len(ids))
	}
}

// Inputs and outputs are sent only to those who ask for them, secrets to nobody.
func TestWhatATraceTells(t *testing.T) {
	for _, content := range []bool{false, true} {
		x := newTraced(t)
		x.work(content)
		x.answer()
		x.work(content)
		text := fmt.Sprint(x.collector.Spans())
		if strings.Contains(text, secret) {
			t.Errorf("the secret was sent: %s", text)
		}
		if !strings.Contains(text, "[redacted:KEY]") {
			t.Errorf("the model's name is missing: %s", text)
		}
		if strings.Contains(text, "private") != content || strings.Contains(text, "gen_ai.tool.call.result") != content {
			t.Errorf("with content %v it is %s", content, text)
		}
	}
}

// A collector that is down costs one warning. What it did not get is counted, and sent by the next
// command.
func TestACollectorThatIsDown(t *testing.T) {
	x := newTraced(t)
	x.collector.Fail(http.StatusServiceUnavailable)
	x.work(false)
	if len(x.said) != 2 || !strings.Contains(x.said[0], "warning: --otlp: nothing can be sent to http://127.0.0.1:") || !strings.Contains(x.said[0], "503 Service Unavailable") ||
		!strings.Contains(x.said[1], "2 spans of run "+x.runID+" were not sent") {
		t.Errorf("it said %q", x.said)
	}
	x.collector.Fail(0)
	x.answer()
	x.work(false)
	if _, times := x.spans(); len(times) != 7 || len(x.collector.Spans()) != 7 || len(x.said) != 2 {
		t.Errorf("the collector has %v; it said %q", times, x.said)
	}
	x.collector.Fail(http.StatusNotFound)
	y := newTraced(t)
	y.collector.Fail(http.StatusNotFound)
	y.work(false)
	if len(y.said) != 3 || !strings.Contains(y.said[1]+y.said[2], "has refused 2 spans") {
		t.Errorf("it said %q", y.said)
	}
}

// The metrics of a run are how it stands.
func TestMetricsOfARun(t *testing.T) {
	x := newTraced(t)
	x.work(false)
	x.answer()
	x.work(false)
	got := map[string]string{}
	for _, m := range x.collector.Metrics() {
		for _, p := range m.GetGauge().DataPoints {
			key := m.Name
			for _, a := range p.Attributes {
				if a.Key == "evalrun.state" || a.Key == "gen_ai.agent.name" {
					key += " " + a.Value.GetStringValue()
				}
			}
			got[key] = fmt.Sprint(p.GetAsInt(), p.GetAsDouble())
		}
	}
	for key, want := range map[string]string{"evalrun.rollouts completed": "1 0", "evalrun.rollouts suspended": "0 0", "evalrun.score adder": "0 1", "evalrun.tokens.input adder": "15 0", "evalrun.tokens.output adder": "3 0"} {
		if got[key] != want {
			t.Errorf("%s is %q, not %q", key, got[key], want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Given another process that is sending the run, and has read its events: then the command sends at
// its end what has happened since.
func TestWhatAnotherProcessHasNotReadIsSent(t *testing.T) {
	x := newTraced(t)
	x.work(false)
	x.answer()
	logs, err := filepath.Glob(filepath.Join(x.dir, "store", "runs", x.runID, "otlp-*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	other, err := durable.TryLock(logs[0], 0o600)
	check(err)
	x.heard = func(text string) {
		if strings.Contains(text, "waiting for another process") {
			check(other.Close())
		}
	}
	x.work(false)
	if _, times := x.spans(); times["rollout Small numbers"] != 1 || times["invoke_agent adder 2"] != 1 {
		t.Errorf("the collector has %v", times)
	}
}
