package judged_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
)

// A ready prompt has what it needs from the evaluation, and says what is missing.
func TestReadyPrompts(t *testing.T) {
	subject := func(criteria string) eval.Subject {
		return eval.Subject{Output: json.RawMessage(`"At ten."`), Evaluation: eval.Evaluation{
			Inputs: json.RawMessage(`{"q": "When?"}`), ExpectedOutput: json.RawMessage(`"At nine."`),
			Criteria: map[string]json.RawMessage{"j": json.RawMessage(criteria)}}}
	}
	for template, c := range map[string]struct{ criteria, has string }{
		"factuality":   {`null`, "At nine."},
		"faithfulness": {`{"context": "a sign at the door"}`, "a sign at the door"},
		"relevance":    {`null`, "When?"},
		"refusal":      {`null`, "At ten."},
		"rubric":       {`{"rubric": "It is polite."}`, "It is polite."},
	} {
		asked := ""
		file := `{"id": "j", "type": "llm-judge", "evaluatorConfig": {"template": "` + template + `"}}`
		result := evaltest.JudgedBy(t, file, subject(c.criteria), func(q eval.Question) (string, error) {
			asked = q.Prompt
			return `{"justification": "so", "score": 0.5, "cannotBeJudged": false}`, nil
		})
		evaltest.WantScore(t, result, 0.5)
		if !strings.Contains(asked, c.has) || !strings.Contains(asked, "At ten.") || strings.Contains(asked, "{{") {
			t.Errorf("%s asks %q", template, asked)
		}
	}
	result := evaltest.JudgedBy(t, `{"id": "j", "type": "llm-judge", "evaluatorConfig": {"template": "rubric"}}`,
		subject(`null`), evaltest.Says("1"))
	if result.Score != nil || !strings.Contains(result.Error, "has no rubric") {
		t.Errorf("got %+v, expected to be told that there is no rubric", result)
	}
}
