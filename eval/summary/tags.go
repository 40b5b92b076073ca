package summary

import (
	"maps"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
)

// TagSummary are the statistics of the evaluations that have a tag. An evaluation with several
// counts for each of them.
type TagSummary struct {
	Tag string `json:"tag"`
	// Evaluations is how many have the tag. Score and PassRate are over those with a score, and
	// EvaluationsPassed counts as it does for all.
	Evaluations       int            `json:"evaluations"`
	Score             stats.Estimate `json:"score"`
	PassRate          stats.Estimate `json:"passRate"`
	EvaluationsPassed int            `json:"evaluationsPassed"`
}

// tagTally sums up the evaluations with one tag.
type tagTally struct {
	evaluations, passed int
	score, passRate     figure
}

// tagTallies are the tallies of one agent, by tag.
type tagTallies map[string]*tagTally

// add adds an evaluation to its tags.
func (t tagTallies) add(e *eval.Evaluation, cluster string, score epochs, reduce, share func([]float64) float64,
	passed bool) {
	if e == nil {
		return
	}
	for _, tag := range e.Tags {
		one := t[tag]
		if one == nil {
			one = &tagTally{}
			t[tag] = one
		}
		one.evaluations++
		if passed {
			one.passed++
		}
		one.score.add(cluster, score, reduce)
		one.passRate.add(cluster, score, share)
	}
}

// summaries returns the summaries sorted by tag.
func (t tagTallies) summaries(method stats.Method) (out []TagSummary) {
	for _, tag := range slices.Sorted(maps.Keys(t)) {
		one := t[tag]
		out = append(out, TagSummary{Tag: tag, Evaluations: one.evaluations, Score: one.score.Estimate(method),
			PassRate: one.passRate.Estimate(method), EvaluationsPassed: one.passed})
	}
	return out
}
