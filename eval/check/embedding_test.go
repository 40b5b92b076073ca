package check_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
)

// embeddings of some texts: those of cat and kitten have the cosine 0.96.
var embeddings = map[string]string{"cat": "[3,4]", "kitten": "[4,3]", "car": "[4,-3]", "not a cat": "[-3,-4]", "long": "[1,2,3]",
	"nowhere": "[0,0]", "words": `["a"]`, "huge": "[1e300,1e300]", "none": "null", "many": "{}"}

func alike(t *testing.T, config, expected, output string) (eval.Result, []eval.Question) {
	t.Helper()
	var asked []eval.Question
	answers := make(chan eval.Question, 100)
	r := evaltest.JudgedBy(t, `{"id": "e", "type": "similar", "model": "m"`+config+`}`, eval.Subject{Output: json.RawMessage(output),
		Evaluation: eval.Evaluation{ID: "1", Inputs: json.RawMessage("{}"), ExpectedOutput: json.RawMessage(expected)}},
		func(q eval.Question) (string, error) {
			answers <- q
			return embeddings[q.Prompt], nil
		})
	close(answers)
	for q := range answers {
		asked = append(asked, q)
	}
	return r, asked
}

func TestSimilar(t *testing.T) {
	for _, c := range []struct {
		config, expected, output string
		score                    float64
		reason                   string
	}{
		{"", `"cat"`, `"cat"`, 1, `expected a text like "cat" in meaning, got 1.000 for "cat"`},
		{"", `"cat"`, `"kitten"`, 0.96, `expected a text like "cat" in meaning, got 0.960 for "kitten"`},
		{"", `"cat"`, `"car"`, 0, `got 0.000 for "car"`},
		{"", `"cat"`, `"not a cat"`, 0, `got 0.000`}, // a cosine below 0 is no score
		{"", `["car", "kitten"]`, `"cat"`, 0.96, `expected a text like "car" or "kitten" in meaning, got 0.960`},
		{`, "threshold": 0.96`, `"cat"`, `"kitten"`, 1, `(from 0.96 on), got 0.960`},
		{`, "threshold": 0.97`, `"cat"`, `"kitten"`, 0, `(from 0.97 on), got 0.960`},
		{`, "threshold": 1`, `"kitten"`, `"kitten"`, 1, `got 1.000`},
		{`, "threshold": 0.97, "not": true`, `"cat"`, `"kitten"`, 1, `expected anything but a text like "cat" in meaning (from 0.97 on), got`},
		{`, "not": true`, `"cat"`, `"kitten"`, 0.04, `expected anything but`},
		{`, "path": "a[0]", "transform": ["trim", "lower"]`, `"cat"`, `{"a": [" KITTEN\n"]}`, 0.96, `got 0.960 for "kitten"`},
		// What is not there fails, turned round or not, and costs nothing.
		{`, "path": "b"`, `"cat"`, `{"a": 1}`, 0, `but b is not there`},
		{`, "path": "b", "not": true`, `"cat"`, `{"a": 1}`, 0, `but b is not there`},
		{`, "not": true`, `"cat"`, `" \n"`, 0, `but it is empty`},
		{`, "not": true`, `"cat"`, `null`, 0, `but it is null`},
	} {
		r, asked := alike(t, c.config, c.expected, c.output)
		if r.Error != "" || r.Score == nil || math.Abs(*r.Score-c.score) > 1e-12 || !strings.Contains(string(r.Details), strings.ReplaceAll(c.reason, `"`, `\"`)) {
			t.Errorf("%s %s %s: got %v %s %s, expected %v %s", c.config, c.expected, c.output, evaltest.Deref(r.Score), r.Error, r.Details, c.score, c.reason)
		}
		if fails := strings.HasPrefix(c.reason, "but"); fails != (len(asked) == 0) || fails != (r.Judge == nil) {
			t.Errorf("%s %s: asked %d times, %+v", c.config, c.output, len(asked), r.Judge)
		}
		for _, q := range asked {
			if !q.Embed || q.Model != "m" || q.EvaluatorID != "e" {
				t.Errorf("asked %+v", q)
			}
		}
	}
}

// Nobody can tell how like two texts are without two embeddings: there is no score.
func TestSimilarWithoutEmbeddings(t *testing.T) {
	for _, c := range []struct{ expected, output, want string }{
		{`"cat"`, `"long"`, "embeddings of 3 and of 2 numbers"},
		{`"cat"`, `"nowhere"`, "say no direction"},
		{`"cat"`, `"huge"`, "say no direction"},
		{`"cat"`, `"words"`, "no array of numbers"},
		{`"cat"`, `"none"`, "say no direction"},
		{`"cat"`, `"many"`, "no array of numbers"},
		{`[]`, `"cat"`, "at least one text"},
		{`["cat", ""]`, `"cat"`, "it is empty"},
		{`null`, `"cat"`, "it is null"},
	} {
		r, _ := alike(t, `, "not": true`, c.expected, c.output)
		if r.Score != nil || !strings.Contains(r.Error, c.want) {
			t.Errorf("%s %s: got %v %q, expected no score and %q", c.expected, c.output, evaltest.Deref(r.Score), r.Error, c.want)
		}
	}
	r := evaltest.JudgedBy(t, `{"id": "e", "type": "similar", "model": "m"}`, eval.Subject{Output: json.RawMessage(`"cat"`),
		Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`"cat"`)}}, nil)
	if r.Score != nil || r.NotRun == "" {
		t.Errorf("without a judge: %+v", r)
	}
	failing := func(err error) eval.Result {
		return evaltest.JudgedBy(t, `{"id": "e", "type": "similar", "model": "m"}`, eval.Subject{Output: json.RawMessage(`"cat"`),
			Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`"cat"`)}}, func(eval.Question) (string, error) { return "", err })
	}
	if r := failing(&eval.NotAsked{Reason: "no provider"}); r.Score != nil || r.NotRun != "no provider" {
		t.Errorf("got %+v", r)
	}
	r = failing(&eval.JudgeError{Category: eval.JudgeRateLimit, Message: "slower"})
	if r.Score != nil || r.ErrorCategory != eval.JudgeRateLimit || r.Judge == nil || len(r.Judge.Verdicts) != 2 || r.Judge.Verdicts[0].Error != "slower" {
		t.Errorf("got %+v", r)
	}
}

// The settings by which a score changes are a part of what tells judges apart.
func TestSimilarFingerprint(t *testing.T) {
	seen := map[string]string{}
	for _, config := range []string{"", `, "not": true`, `, "threshold": 0.5`, `, "transform": "trim"`, `, "path": "[0]"`} {
		r, _ := alike(t, config, `"cat"`, `["cat"]`)
		if config != `, "path": "[0]"` {
			r, _ = alike(t, config, `"cat"`, `"cat"`)
		}
		if other, twice := seen[r.Judge.Fingerprint]; twice {
			t.Errorf("%q and %q have the fingerprint %s", config, other, r.Judge.Fingerprint)
		}
		seen[r.Judge.Fingerprint] = config
	}
	if len(seen) != 5 {
		t.Error(fmt.Sprint(seen))
	}
}
