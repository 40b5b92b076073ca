package modelagent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// batched runs a segment of an agent that asks in batches.
func batched(t *testing.T, entry string, seg agent.Segment) agent.Outcome {
	t.Helper()
	a := newAgent(entryOf(t, entry), agent.Options{Resolve: func(string) (string, bool) { return testKey, true }}, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	seg.RolloutID, seg.Prompt, seg.Attempt = "r", "How?", 1
	seg.Budget = &agent.Budget{Prices: eval.Prices{"m1": {Input: 1e6, Output: 1e6}}}
	if seg.Dir == "" {
		seg.Dir = t.TempDir()
	}
	out, err := a.Run(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The first segment asks nothing: its request, which is the one that would be sent directly, goes to a
// batch, and its answer is the output of the next one. A request that the batch has not answered is
// asked for directly, or is a fault. What came in a batch costs less.
func TestAnAnswerComesInABatch(t *testing.T) {
	url, bodies := serve(t, good)
	entry := `{` + modelOf(model.APIChat, url) + `, "batch": true}`
	first := batched(t, entry, agent.Segment{Number: 1})
	if len(first.Interrupts) != 1 || len(*bodies) != 0 {
		t.Fatalf("%+v, sent %s", first, *bodies)
	}
	in := first.Interrupts[0]
	direct, _, _ := run(t, `{`+modelOf(model.APIChat, url)+`, "prompt": "How?"}`, `{}`)
	if direct.Fault != nil || string(in.Request.Body) != (*bodies)[0] || in.ID != "answer-1" || in.Request.Source != wait.SourceOpenAIBatch {
		t.Errorf("%s goes to the batch as %+v, want %s", in.Request.Body, in, *bodies)
	}
	var shown wait.Batched
	if err := json.Unmarshal(in.Specs[0].Payload, &shown); err != nil || shown.InputTokens == 0 || shown.InputCost == nil || *shown.InputCost != float64(shown.InputTokens)/2 {
		t.Errorf("%s, %v", in.Specs[0].Payload, err)
	}
	tokens := float64(direct.Info.Usage[0].Tokens())
	deliver := func(answer model.BatchAnswer) map[string]agent.Delivery {
		payload, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]agent.Delivery{"answer-1": {Payload: payload}}
	}
	answered := deliver(model.BatchAnswer{Batch: "b", Body: json.RawMessage(good.body)})
	fails := strings.Replace(entry, "true", `{"expired": "fail"}`, 1)
	expired := deliver(model.BatchAnswer{Batch: "b", Error: "expired"})
	for name, c := range map[string]struct {
		entry    string
		seg      agent.Segment
		requests int
		cost     float64
		says     string
	}{
		"answered":                      {entry, agent.Segment{Deliveries: answered}, 0, tokens / 2, `{"content":"fine"}`},
		"expired, asked directly":       {entry, agent.Segment{Deliveries: expired}, 1, tokens, `{"content":"fine"}`},
		"expired, a fault":              {fails, agent.Segment{Deliveries: expired}, 0, 0, "without an answer: expired"},
		"a fault before, so asked anew": {entry, agent.Segment{Deliveries: answered, Failures: 1}, 1, tokens, `{"content":"fine"}`},
		"too long for the model":        {entry, agent.Segment{Deliveries: deliver(model.BatchAnswer{Error: "prompt is too long: 3 tokens"})}, 0, 0, "longer than the model's context"},
		"delivered by somebody else":    {entry, agent.Segment{Deliveries: map[string]agent.Delivery{"answer-1": {Payload: json.RawMessage(`{"x":1}`)}}}, 1, tokens, `{"content":"fine"}`},
		"an answer without a meaning":   {entry, agent.Segment{Deliveries: deliver(model.BatchAnswer{Body: json.RawMessage(`{"choices":[]}`)})}, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			*bodies = nil
			c.seg.Number = 2
			out := batched(t, c.entry, c.seg)
			got := string(out.Output)
			if out.Fault != nil {
				got = out.Fault.Message
			}
			cost := 0.
			for _, u := range out.Info.Usage {
				if u.Cost != nil {
					cost += *u.Cost
				}
			}
			if !strings.Contains(got, c.says) || len(*bodies) != c.requests || cost != c.cost {
				t.Errorf("%s, %d requests, cost %v; want %s, %d, %v", got, len(*bodies), cost, c.says, c.requests, c.cost)
			}
		})
	}
}

// An answer of a batch is counted by the first attempt that reads it.
func TestAnAnswerOfABatchIsCountedOnce(t *testing.T) {
	dir, seg := t.TempDir(), agent.Segment{Number: 2, Deliveries: map[string]agent.Delivery{"answer-1": {Payload: json.RawMessage(`{"batch":"b","body":` + good.body + `}`)}}}
	var used []eval.Usage
	for _, name := range []string{"1.1", "2.1", "2.2"} {
		if seg.Dir = filepath.Join(dir, name); os.Mkdir(seg.Dir, 0o700) != nil {
			t.Fatal("no folder")
		}
		if name == "1.1" { // the answer of another segment
			log := record.NewUsageLog(seg.Dir)
			if err := log.Append(eval.Usage{Model: "m1", InputTokens: 1}); err != nil || log.Close() != nil {
				t.Fatal(err)
			}
		} else if out := batched(t, `{`+modelOf(model.APIChat, "http://127.0.0.1:1")+`, "batch": true}`, seg); out.Fault != nil {
			t.Fatal(out.Fault)
		} else {
			used = append(used, out.Info.Usage...)
		}
		seg.Earlier = append(seg.Earlier, seg.Dir)
	}
	if len(used) != 1 || used[0].Tokens() != 10 {
		t.Errorf("counted %+v", used)
	}
}

// Each turn of a loop waits for its batch. The conversation goes on with the answer: what is cut off of
// a segment asks for nothing again.
func TestALoopAsksInBatches(t *testing.T) {
	b := newBench(t)
	ask := func() agent.Outcome {
		return b.run(t.Context(), model.APIMessages, "http://127.0.0.1:1", `, "batch": {"maxWait": "1m"}`, "Work.")
	}
	first := ask()
	again := ask() // the first was killed before its end was committed
	if first.Fault != nil || len(first.Interrupts) != 1 || !cmp.Equal(first.Interrupts, again.Interrupts) || first.Batched != 0 {
		t.Fatalf("%+v, then %+v", first, again)
	}
	if r := first.Interrupts[0].Request; r.Source != wait.SourceAnthropicBatch || r.Wait != time.Minute || len(r.CustomID) != 40 {
		t.Errorf("%+v", r)
	}
	b.seg.Number, b.seg.History = 2, []string{b.seg.Dir}
	b.seg.Deliveries = map[string]agent.Delivery{"answer-1": {Payload: json.RawMessage(`{"batch":"b","body":{"stop_reason":"tool_use","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"tool_use","id":"c1","name":"bash","input":{"command":"echo x >>ran; echo out"}}],"usage":{"input_tokens":1,"output_tokens":2}}}`)}}
	b.attempt, b.dir = 0, filepath.Join(b.dir, "second")
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second := ask()
	if second.Fault != nil || len(second.Interrupts) != 1 || second.Interrupts[0].ID != "answer-2" || second.Batched != 1 {
		t.Fatalf("%+v", second)
	}
	if !isPrefix(t, first.Interrupts[0].Request.Body, second.Interrupts[0].Request.Body) || !strings.Contains(string(second.Interrupts[0].Request.Body), `"out\n"`) &&
		!strings.Contains(string(second.Interrupts[0].Request.Body), `"out"`) || !strings.Contains(string(second.Interrupts[0].Request.Body), `"signature":"s"`) {
		t.Errorf("%s", second.Interrupts[0].Request.Body)
	}
	if again := ask(); !cmp.Equal(second.Interrupts, again.Interrupts) {
		t.Errorf("%+v after the crash", again)
	}
	if ran, err := os.ReadFile(filepath.Join(b.seg.Sandbox.Cwd, "ran")); err != nil || string(ran) != "x\n" {
		t.Errorf("the command has run: %q, %v", ran, err)
	}
	b.seg.Deliveries = map[string]agent.Delivery{"answer-2": {Payload: json.RawMessage(`{"batch":"b","error":"expired"}`)}}
	b.seg.Number, b.seg.History, b.attempt = 3, []string{b.seg.Dir}, 10
	if out := ask(); out.Fault == nil || out.Fault.Category != fault.Model { // asked directly, where nobody is
		t.Errorf("%+v", out)
	}
}
