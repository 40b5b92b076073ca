package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// overview describes the outcome of a run: its scores, its statistics, and what these leave out.
type overview struct{ *schemas.Head }

func (r *Report) summary() overview { return overview{&r.Head} }

// formatScores writes the score of the run, for each agent if there are several.
func (h overview) formatScores() string {
	one := func(score, completed *float64) string {
		out := formatScore(score)
		if c := formatScore(completed); completed != nil && c != out {
			out += " (" + c + " without faulted)"
		}
		return out
	}
	s := h.Summary
	if len(s.Agents) == 0 {
		return "score " + one(s.Score, s.ScoreCompleted)
	}
	var out []string
	for _, a := range s.Agents {
		out = append(out, redact.Line(a.Agent)+" "+one(a.Score, a.ScoreCompleted))
	}
	return "score " + strings.Join(out, ", ")
}

// missing says in a few words what the scores leave out.
func (h overview) missing() string {
	if out := Missing(h.Head); len(out) > 0 {
		return "; missing: " + strings.Join(out, ", ")
	}
	return ""
}

// Missing says what the scores of a run leave out, each kind in a few words.
func Missing(h *schemas.Head) (out []string) {
	if h.Statistics == nil {
		return nil
	}
	c := h.Statistics.Coverage
	if c.Unscored > 0 {
		out = append(out, fmt.Sprintf("%d of %s unscored", c.Unscored, count(c.Evaluations, "evaluation")))
	}
	if c.EvaluatorErrors > 0 {
		out = append(out, count(c.EvaluatorErrors, "evaluator error"))
	}
	if c.EvaluatorsNotRun > 0 {
		out = append(out, count(c.EvaluatorsNotRun, "evaluator result")+" not run")
	}
	if f := h.Statistics.Faults; f.Environment > 0 {
		out = append(out, count(f.Environment, "fault")+" of the environment")
	}
	if n := len(h.Rescorings); n > 0 {
		last := h.Rescorings[n-1]
		if last.Due > 0 {
			out = append(out, count(last.Due, "rollout")+" still to be scored again")
		}
		if last.NotScored > 0 {
			out = append(out, count(last.NotScored, "rollout")+" not scored again")
		}
	}
	return out
}

// table has a row for each evaluator and one for all of them together. With several agents it has a
// column for each. escape is applied to names.
func (h overview) table(escape func(string) string) (head []string, rows [][]string) {
	s := h.Statistics
	if s == nil {
		return nil, nil
	}
	agents := s.PerAgent()
	scored := false
	for _, a := range agents {
		scored = scored || slices.ContainsFunc(a.Evaluators, func(e summary.EvaluatorSummary) bool {
			return e.N+e.Errors+e.NotRun > 0
		})
	}
	if !scored {
		return nil, nil
	}
	if len(agents) == 1 {
		return []string{"evaluator", "evaluations", "mean ± standard error", "pass rate (95 % interval)", ""},
			h.rowsOf(agents[0], escape)
	}
	head = []string{"evaluator"}
	for _, a := range agents {
		head = append(head, escape(a.Agent))
	}
	cell := func(score, passRate stats.Estimate, notes string) string {
		out := formatMean(score)
		if passRate.Mean != nil {
			out += ", " + formatPassRate(passRate)
		}
		if notes != "" {
			out += ", " + notes
		}
		return out
	}
	for _, e := range agents[0].Evaluators {
		row := []string{escape(e.Name)}
		for _, a := range agents {
			own := summary.EvaluatorSummary{}
			if i := slices.IndexFunc(a.Evaluators, func(other summary.EvaluatorSummary) bool {
				return other.ID == e.ID
			}); i >= 0 {
				own = a.Evaluators[i]
			}
			row = append(row, cell(own.Estimate, own.PassRate, notes(own)))
		}
		rows = append(rows, row)
	}
	together, completed := []string{"together"}, []string{"without faulted"}
	for _, a := range agents {
		together = append(together, cell(a.Score, a.PassRate, ""))
		completed = append(completed, formatMean(a.ScoreCompleted))
	}
	if rows = append(rows, together); s.Faults.Agent > 0 {
		rows = append(rows, completed)
	}
	tags, more := h.tags()
	for _, tag := range tags {
		row := []string{"tag " + escape(tag)}
		for _, a := range agents {
			own := tagOf(a, tag)
			row = append(row, cell(own.Score, own.PassRate, ""))
		}
		rows = append(rows, row)
	}
	if more != "" {
		rows = append(rows, append([]string{more}, make([]string, len(agents))...))
	}
	return head, rows
}

// rowsOf has a row for each evaluator of one agent, and one for all of them together.
func (h overview) rowsOf(a summary.AgentSummary, escape func(string) string) (rows [][]string) {
	for _, e := range a.Evaluators {
		rows = append(rows, []string{escape(e.Name), fmt.Sprint(e.N),
			formatMean(e.Estimate), formatPassRate(e.PassRate), notes(e)})
	}
	rows = append(rows, []string{"together", fmt.Sprint(a.Score.N), formatMean(a.Score), formatPassRate(a.PassRate), ""})
	if h.Statistics.Faults.Agent > 0 {
		rows = append(rows, []string{"without faulted", fmt.Sprint(a.ScoreCompleted.N), formatMean(a.ScoreCompleted), "", ""})
	}
	tags, more := h.tags()
	for _, tag := range tags {
		own := tagOf(a, tag)
		rows = append(rows, []string{"tag " + escape(tag), fmt.Sprint(own.Score.N),
			formatMean(own.Score), formatPassRate(own.PassRate), ""})
	}
	if more != "" {
		rows = append(rows, []string{more, "", "", "", ""})
	}
	return rows
}

// Tags returns the tags of h that have a row of scores, as overview.tags says.
func Tags(h *schemas.Head) (tags []string, more string) { return overview{h}.tags() }

// tags returns the tags that have a row: all, or where there are many those of the most
// evaluations. more says that there are others.
func (h overview) tags() (tags []string, more string) {
	const most = 20
	evaluations := map[string]int{}
	for _, a := range h.Statistics.PerAgent() {
		for _, t := range a.Tags {
			evaluations[t.Tag] = max(evaluations[t.Tag], t.Evaluations)
		}
	}
	if tags = slices.Sorted(maps.Keys(evaluations)); len(tags) <= most {
		return tags, ""
	}
	more = "and " + count(len(tags)-most, "tag") + " more, in the results document"
	slices.SortStableFunc(tags, func(a, b string) int { return evaluations[b] - evaluations[a] })
	tags = tags[:most]
	slices.Sort(tags)
	return tags, more
}

func tagOf(a summary.AgentSummary, tag string) summary.TagSummary {
	i := slices.IndexFunc(a.Tags, func(t summary.TagSummary) bool { return t.Tag == tag })
	if i < 0 {
		return summary.TagSummary{}
	}
	return a.Tags[i]
}

// agentGrid is a table of the statistics of one agent, or of several side by side.
type agentGrid struct {
	title string
	grid
}

// grids lays the table out for so many columns (0 means any number): with shorter titles, and
// if need be with a table for each of several agents.
func (h overview) grids(escape func(string) string, columns int) []agentGrid {
	head, rows := h.table(escape)
	if rows == nil {
		return nil
	}
	fitting := func(head []string, rows [][]string, flexible ...int) (g grid, fits bool) {
		g = grid{rows: append([][]string{head}, rows...), flexible: flexible}
		_, fits = g.widths(columns)
		return g, fits
	}
	if g, fits := fitting(head, rows); fits {
		return []agentGrid{{"", g}}
	}
	short := []string{"evaluator", "n", "mean ± s.e.", "pass rate", ""}
	agents := h.Statistics.PerAgent()
	var out []agentGrid
	for _, a := range agents {
		title := ""
		if len(agents) > 1 {
			title = fit(redact.Line(a.Agent)+":", columns)
		}
		g, _ := fitting(short, h.rowsOf(a, escape), 0, 4)
		out = append(out, agentGrid{title, g})
	}
	return out
}

// statisticsSentences say how intervals were computed, if the set chose it, and for each agent
// which evaluations are flaky, and whether more epochs or more evaluations would make the score
// more precise.
func (h overview) statisticsSentences() (out []string) {
	if h.Statistics == nil {
		return nil
	}
	if h.Statistics.Interval == stats.Student {
		out = append(out, byStudent)
	}
	const most = 10
	for _, a := range h.Statistics.PerAgent() {
		prefix := ""
		if len(h.Statistics.Agents) > 0 {
			prefix = redact.Line(a.Agent) + ": "
		}
		if len(a.Flaky) > 0 {
			var ids []string
			for _, f := range a.Flaky[:min(len(a.Flaky), most)] {
				ids = append(ids, fmt.Sprintf("%s %d/%d", shorten(redact.Line(f.EvaluationID), nameWidth), f.Passes, f.N))
			}
			if more := len(a.Flaky) - most; more > 0 {
				ids = append(ids, fmt.Sprintf("and %d more", more))
			}
			out = append(out, fmt.Sprintf("%s%d of %s pass in some epochs only: %s",
				prefix, len(a.Flaky), count(a.Score.N, "evaluation"), strings.Join(ids, ", ")))
		}
		if v := a.Variance; v != nil && v.Within > 0 {
			now, byEpochs, byEvaluations := v.Doubling(a.Score.N, h.Statistics.Epochs)
			out = append(out, fmt.Sprintf(
				"%sdoubling the epochs lowers the standard error from %.3f to %.3f, doubling the evaluations to %.3f",
				prefix, now, byEpochs, byEvaluations))
		}
	}
	return out
}

// notes say what the mean of an evaluator leaves out.
func notes(e summary.EvaluatorSummary) string {
	var out []string
	if e.Errors > 0 {
		out = append(out, fmt.Sprintf("%d failed", e.Errors))
	}
	if e.NotRun > 0 {
		out = append(out, fmt.Sprintf("%d not run", e.NotRun))
	}
	if e.ScoreStrict != nil && e.Score != nil && *e.ScoreStrict != *e.Score {
		out = append(out, fmt.Sprintf("score %s, or %s without %d predictions that are none of its classes",
			formatScore(e.ScoreStrict), formatScore(e.Score), e.Skipped))
	}
	return strings.Join(out, ", ")
}
