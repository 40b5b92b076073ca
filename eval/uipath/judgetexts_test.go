package uipath

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
)

// listener is a judge that keeps the question.
type listener struct{ asked eval.Question }

func (l *listener) Redact(text string) string { return text }

func (l *listener) Ask(_ context.Context, q eval.Question) (eval.Answer, error) {
	l.asked = q
	return eval.Answer{}, &eval.NotAsked{Reason: "it only listens"}
}

func TestKindsOfJudgesHaveTheirOwnTexts(t *testing.T) {
	seen := map[string]bool{}
	for kind, texts := range map[string]judgeTexts{"output-semantic-similarity": semanticSimilarity, "output-strict-json-similarity": strictJSONSimilarity,
		"trajectory-similarity": trajectorySimilarity, "trajectory-simulation": trajectorySimulation} {
		e, err := Kinds.New(eval.Definition{ID: "j", Type: "uipath-llm-judge-" + kind, Config: json.RawMessage(`{"name":"j","model":"m"}`)})
		if err != nil {
			t.Fatal(err)
		}
		judge := &listener{}
		e.Evaluate(t.Context(), eval.Subject{Judge: judge, Output: json.RawMessage(`1`), Evaluation: eval.Evaluation{Inputs: json.RawMessage(`{}`), ExpectedOutput: json.RawMessage(`1`),
			Criteria: map[string]json.RawMessage{"j": json.RawMessage(`{"expectedAgentBehavior": "x", "expectedOutput": 1}`)}}})
		q := judge.asked
		if q.System != texts.system || strings.Contains(q.Prompt, "{{") || strings.Contains(q.Prompt, "## Actual Output") || seen[q.Prompt+q.System] {
			t.Errorf("%s: %s", kind, q.Prompt)
		}
		seen[q.Prompt+q.System] = true
	}
}
