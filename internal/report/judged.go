package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// Justifications returns what judges say in the details of a result, in any of the forms that they
// use, each text once.
func Justifications(details json.RawMessage) (out []string) {
	var said struct {
		Justifications []string `json:"justifications"`
		Justification  string   `json:"justification"`
	}
	_ = json.Unmarshal(details, &said) // another form has no such members
	var text string
	_ = json.Unmarshal(details, &text)
	for _, one := range append(said.Justifications, said.Justification, text) {
		if one = strings.TrimSpace(one); one != "" && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// JudgeVotes writes the votes of a verdict, how far apart they are and what they cost, in a line.
// It is empty if there are none, as where only embeddings were asked for. score writes a score.
func JudgeVotes(j *eval.Judged, score func(*float64) string) string {
	if j == nil || len(j.Verdicts) == 0 || j.Verdicts[0].Label == eval.LabelEmbedding {
		return ""
	}
	var verdicts, models []string
	for _, c := range j.Verdicts {
		verdict := c.Label
		if verdict == "" && c.Score != nil {
			verdict = score(c.Score)
		}
		verdicts = append(verdicts, cmp.Or(verdict, "no vote"))
		if model := cmp.Or(c.ModelReturned, c.Model); !slices.Contains(models, model) {
			models = append(models, model)
		}
	}
	parts := []string{fmt.Sprintf("%s of %s: %s",
		count(len(verdicts), "vote"), strings.Join(models, ", "), strings.Join(verdicts, ", "))}
	if len(verdicts) > 1 {
		parts = append(parts, j.Reduce)
	}
	if j.Spread != nil {
		parts = append(parts, "spread "+score(j.Spread))
	}
	if j.Agreement != nil {
		parts = append(parts, fmt.Sprintf("agreement %.0f %%", 100**j.Agreement))
	}
	if cost := eval.CostOf(j.Verdicts); cost != nil {
		parts = append(parts, "cost "+dollars(*cost))
	}
	return strings.Join(parts, "; ")
}

// saidByJudges returns the justifications that models gave for a result, and how they voted if they
// were asked several times, in lines. It is nil if nothing was said.
func saidByJudges(result schemas.EvaluationResult) (out []string) {
	if result.Judge == nil {
		return nil
	}
	for _, said := range Justifications(result.Details) {
		out = append(out, textLines(middle(said, longWidth))...)
	}
	if len(result.Judge.Verdicts) > 1 || len(out) == 0 {
		if votes := redact.Line(JudgeVotes(result.Judge, formatScore)); votes != "" {
			out = append(out, votes)
		}
	}
	return out
}
