package judged_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
)

func TestPairwise(t *testing.T) {
	for name, c := range map[string]struct {
		said        [2]string
		score       float64
		consistency string
	}{
		"better":         {[2]string{`"A"`, `"B"`}, 1, `"positionConsistency":1`},
		"worse":          {[2]string{`"B"`, `"A"`}, 0, `"positionConsistency":1`},
		"ties":           {[2]string{`"tie"`, `"tie"`}, 0.5, `"positionConsistency":1`},
		"always first":   {[2]string{`"A"`, `"A"`}, 0.5, `"positionConsistency":0`},
		"once better":    {[2]string{`"A"`, `"tie"`}, 0.5, `"positionConsistency":0`},
		"one that fails": {[2]string{`"A"`, "!judge-refused"}, -1, ""},
		"cannot say":     {[2]string{`"A"`, "?"}, -1, ""},
	} {
		s := eval.Subject{Output: json.RawMessage(`"mine"`), Evaluation: eval.Evaluation{Inputs: json.RawMessage(`{"q": 1}`), ExpectedOutput: json.RawMessage(`"theirs"`)}}
		got := evaltest.JudgedBy(t, `{"version":"1.0","id":"j","type":"pairwise","evaluatorConfig":{"name":"j","judges":[{"model":"a"}]}}`, s, func(q eval.Question) (string, error) {
			mine, theirs := strings.Index(q.Prompt, "mine"), strings.Index(q.Prompt, "theirs")
			if mine < 0 || theirs < 0 || (mine < theirs) != (q.Sample == 0) {
				t.Errorf("%s: question %d is\n%s", name, q.Sample, q.Prompt)
			}
			return saying(t, "label", c.said[0], c.said[1])(q)
		})
		if c.score < 0 {
			if got.Score != nil {
				t.Errorf("%s: %v", name, *got.Score)
			}
			continue
		}
		if got.Score == nil || *got.Score != c.score || !strings.Contains(string(got.Details), c.consistency) || len(got.Judge.Verdicts) != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := evaltest.JudgedBy(t, `{"version":"1.0","id":"j","type":"pairwise","evaluatorConfig":{"name":"j"}}`, eval.Subject{Output: json.RawMessage(`1`)}, evaltest.Says("1")); got.Score != nil || !strings.Contains(got.Error, "expectedOutput") {
		t.Errorf("without an expected output: %+v", got)
	}
}

// Given outputs of another run for some agents and attempts: each rollout is compared with its own, and
// where there is none nobody is asked.
func TestPairwiseWithAnotherRun(t *testing.T) {
	references := []eval.ReferenceOutput{
		{Agent: "one", Epoch: 1, RolloutID: "r1", Output: json.RawMessage(`{"theirs":"1 < 2"}`)}, {Agent: "one", Epoch: 2, Missing: "it has faulted"},
		{Agent: "two", RolloutID: "r2", Output: json.RawMessage(`"all"`)},
	}
	for _, c := range []struct {
		agent                 string
		epoch                 int
		theirs, rollout, none string
	}{
		{"one", 1, `{"theirs":"1 < 2"}`, "r1", ""}, {"one", 2, "", "", "it has faulted"}, {"one", 3, "", "", "no run was looked up with which it could be compared"},
		{"two", 1, "\nall\n", "r2", ""}, {"two", 7, "\nall\n", "r2", ""},
	} {
		s := eval.Subject{Agent: c.agent, Epoch: c.epoch, Output: json.RawMessage("{\n  \"mine\": \"1 \\u003c 2\"\n}"),
			Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`"expected"`), References: map[string][]eval.ReferenceOutput{"j": references, "other": {{Output: json.RawMessage(`1`)}}}}}
		var asked atomic.Int64 // both orders are asked at once
		got := evaltest.JudgedBy(t, `{"version":"1.0","id":"j","type":"pairwise","evaluatorConfig":{"name":"j","reference":{"run":"latest"},"judges":[{"model":"a"}]}}`, s, func(q eval.Question) (string, error) {
			asked.Add(1)
			if !strings.Contains(q.Prompt, `{"mine":"1 < 2"}`) || !strings.Contains(q.Prompt, c.theirs) || strings.Contains(q.Prompt, "expected\n") {
				t.Errorf("%s %d: question %d is\n%s", c.agent, c.epoch, q.Sample, q.Prompt)
			}
			return saying(t, "label", `"A"`, `"B"`)(q)
		})
		switch {
		case c.none != "" && (asked.Load() > 0 || got.Score != nil || got.NotRun != c.none || got.Error != ""):
			t.Errorf("%s %d: asked %d times, %+v", c.agent, c.epoch, asked.Load(), got)
		case c.none == "" && (asked.Load() != 2 || got.Score == nil || *got.Score != 1 || !strings.Contains(string(got.Details), `"reference":"`+c.rollout+`"`)):
			t.Errorf("%s %d: asked %d times, %+v", c.agent, c.epoch, asked.Load(), got)
		}
	}
}
