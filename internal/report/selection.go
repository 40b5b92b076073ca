package report

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// Selected says in one line how much of its eval set a run has, why, and what was left out. It is
// empty if the run has all of it.
func Selected(h schemas.Head) string {
	s := h.Selection
	if s == nil {
		return ""
	}
	var why []string
	if len(h.EvalIDs) > 0 {
		why = append(why, "--eval-id "+strings.Join(h.EvalIDs, ","))
	}
	if h.Filter != "" {
		why = append(why, "--filter "+h.Filter)
	}
	if len(s.Tags) > 0 {
		why = append(why, "--tag "+strings.Join(s.Tags, ","))
	}
	if h.RetryOf != "" {
		why = append(why, "--retry-of "+h.RetryOf)
	}
	if s.FailedOf != "" {
		why = append(why, "--failed-of "+s.FailedOf)
	}
	if s.Limit > 0 {
		why = append(why, fmt.Sprintf("--limit %d", s.Limit))
	}
	if s.Sample > 0 && s.Seed != nil {
		why = append(why, fmt.Sprintf("--sample %d --seed %d", s.Sample, *s.Seed))
	}
	out := fmt.Sprintf("%d of %s", s.Evaluations, count(s.OfEvaluations, "evaluation"))
	left := fmt.Sprintf("%d left out", s.OfEvaluations-s.Evaluations)
	if s.Rollouts*s.OfEvaluations != s.Evaluations*s.OfRollouts { // some evaluations are there in part
		out = fmt.Sprintf("%d of %s, of %s", s.Rollouts, count(s.OfRollouts, "rollout"), out)
		left = fmt.Sprintf("%s left out", count(s.OfRollouts-s.Rollouts, "rollout"))
	}
	return redact.Line(fmt.Sprintf("%s (%s); %s", out, strings.Join(why, ", "), left))
}

// selected says, a line each, what was not run of the eval set.
func (r *Report) selected(c census) (out []string) {
	if text := Selected(r.Head); text != "" {
		out = append(out, "selected: "+text)
	}
	if n := c.verdicts[verdict(schemas.StateCancelled)]; r.FailFast && n > 0 {
		out = append(out, fmt.Sprintf("--fail-fast: a rollout has failed, and %d of %s cancelled",
			n, were(c.total, "rollout")))
	}
	return out
}

func were(n int, what string) string {
	if n == 1 {
		return count(n, what) + " was"
	}
	return count(n, what) + " were"
}
