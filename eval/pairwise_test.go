package eval

import (
	"encoding/json"
	"strings"
	"testing"
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
		s := Subject{Output: json.RawMessage(`"mine"`), Evaluation: Evaluation{Inputs: json.RawMessage(`{"q": 1}`), ExpectedOutput: json.RawMessage(`"theirs"`)}}
		got := judgedBy(t, `{"version":"1.0","id":"j","type":"pairwise","evaluatorConfig":{"name":"j","judges":[{"model":"a"}]}}`, s, func(q Question) (string, error) {
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
	if got := judgedBy(t, `{"version":"1.0","id":"j","type":"pairwise","evaluatorConfig":{"name":"j"}}`, Subject{Output: json.RawMessage(`1`)}, says("1")); got.Score != nil || !strings.Contains(got.Error, "expectedOutput") {
		t.Errorf("without an expected output: %+v", got)
	}
}
