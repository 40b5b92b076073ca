package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// votes explain the verdict of a judge.
type votes struct {
	// Said are the justifications, each once.
	Said []string
	// Summary has the votes, and how far they are apart, in a line.
	Summary string
	Calls   []vote
}

// vote is the answer of one model.
type vote struct {
	// Verdict is its score or label. Error says why it has none.
	Verdict, Error string
	Model          string
	// From is where the answer came from: the model, the cache or a batch.
	From string
	Took time.Duration
	Cost string
}

// votesOf returns the votes of models for a result, nil if there are none.
func votesOf(r schemas.EvaluationResult) *votes {
	if r.Judge == nil {
		return nil
	}
	v := &votes{}
	if r.Error == "" {
		for _, text := range report.Justifications(r.Details) {
			v.Said = append(v.Said, short(text, maxValue))
		}
	}
	for _, c := range r.Judge.Verdicts {
		v.Calls = append(v.Calls, newVote(c))
	}
	v.Summary = report.JudgeVotes(r.Judge, formatScore)
	return v
}

// String has the justifications and the votes, a line each.
func (v *votes) String() string {
	return strings.Join(append(slices.Clone(v.Said), v.Summary), "\n")
}

func newVote(c eval.JudgeCall) vote {
	v := vote{
		Error: c.Error, Verdict: c.Label, Model: cmp.Or(c.ModelReturned, c.Model), From: "the model",
		Took: time.Duration(c.LatencyMs) * time.Millisecond, Cost: none,
	}
	if v.Verdict == "" && c.Score != nil {
		v.Verdict = formatScore(c.Score)
	}
	switch {
	case c.Cached:
		v.From = "the cache"
	case c.Batch != "" && c.Attempts == 0:
		v.From = "a batch"
	case c.Attempts > 1:
		v.From = fmt.Sprintf("the model, asked %d times", c.Attempts)
	}
	if c.Usage != nil && c.Usage.Cost != nil {
		v.Cost = dollars(*c.Usage.Cost)
	}
	return v
}

// dollars writes an amount as the terminal does.
func dollars(cost float64) string {
	if cost == 0 || cost >= 10 {
		return fmt.Sprintf("$%.2f", cost)
	}
	return fmt.Sprintf("$%.4g", cost)
}
