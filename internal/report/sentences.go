package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// UsageSentences say how much each agent of a run has used of models, then how much its judges
// have, and what that has cost.
func UsageSentences(h *schemas.Head) []string { return overview{h}.usageSentences() }

// usageSentences say how much each agent has used of models, then how much the judges have, and
// what that has cost.
func (h overview) usageSentences() (out []string) {
	if h.Statistics == nil {
		return nil
	}
	for _, a := range h.Statistics.PerAgent() {
		if a.Usage == nil {
			continue
		}
		prefix := ""
		if len(h.Statistics.Agents) > 0 {
			prefix = redact.Line(a.Agent) + ": "
		}
		if a.Usage.Rollouts > 0 {
			out = append(out, prefix+"tokens: "+tokensSentence(a.Usage, a.Rollouts.Total), prefix+"cost: "+costSentence(a.Usage))
		}
		if n := a.Usage.Unlimited; n > 0 {
			out = append(out, fmt.Sprintf(
				"%slimits.tokens and limits.cost could not be checked in %s: the agent has not said what it used",
				prefix, count(n, "rollout")))
		}
	}
	return append(out, h.judgeSentences()...)
}

// judgeSentences say how often the judges of a run were asked, and what that has cost. If there are
// several, they say it for each.
func (h overview) judgeSentences() []string {
	var total *eval.Usage
	calls, cached := 0, 0
	var each, unpriced []string
	for _, j := range h.Statistics.Judges {
		if j.Raters != nil { // these are people
			continue
		}
		calls, cached = calls+j.Calls, cached+j.Cached
		if used := j.Usage; total == nil {
			total = &used
		} else {
			sum := total.Plus(used)
			total = &sum
		}
		cost := "unknown"
		switch {
		case j.Usage.CostKnown():
			cost = dollars(*j.Usage.Cost)
		default:
			unpriced = append(unpriced, j.Models...)
		}
		each = append(each, redact.Line(h.evaluatorName(j.EvaluatorID))+" "+cost)
	}
	if total == nil {
		return nil
	}
	text := "judges: " + count(calls, "question")
	if cached > 0 {
		text += fmt.Sprintf(", %d of them answered from the cache", cached)
	}
	s := summary.UsageSummary{Total: *total}
	text += "; tokens: " + tokensSentence(&s, 0) + "; cost: " + costSentence(&s)
	if len(each) > 1 {
		text += " (" + strings.Join(each, ", ") + ")"
	}
	if len(unpriced) > 0 {
		slices.Sort(unpriced)
		text += "; judges.prices does not have all of " + redact.Line(strings.Join(slices.Compact(unpriced), ", "))
	}
	return []string{text}
}

// evaluatorName returns the name of an evaluator of the run, or its id if it has none.
func (h overview) evaluatorName(id string) string {
	for _, e := range h.Statistics.PerAgent()[0].Evaluators {
		if e.ID == id {
			return e.Name
		}
	}
	return id
}

// taskMetricSentences give for each agent the values of the metrics of a registry's data set.
func (h overview) taskMetricSentences() (out []string) {
	if h.Statistics == nil {
		return nil
	}
	for _, a := range h.Statistics.PerAgent() {
		if len(a.TaskMetrics) == 0 {
			continue
		}
		var parts []string
		for _, m := range a.TaskMetrics {
			parts = append(parts, taskMetric(m))
		}
		prefix := ""
		if len(h.Statistics.Agents) > 0 {
			prefix = redact.Line(a.Agent) + ": "
		}
		first := a.TaskMetrics[0]
		over := count(first.Rollouts, "rollout")
		if first.Missing > 0 {
			over += fmt.Sprintf(", %d of them without a reward, as 0", first.Missing)
		}
		if first.Open > 0 {
			over += fmt.Sprintf("; %d can still change", first.Open)
		}
		out = append(out, fmt.Sprintf("%smetrics of the data set: %s (%s)", prefix, strings.Join(parts, ", "), over))
	}
	return out
}

// taskMetric writes one metric in a few words.
func taskMetric(m summary.TaskMetric) string {
	if m.NotComputed != "" {
		return m.Type + " not computed: " + m.NotComputed
	}
	if len(m.Values) == 1 {
		for _, value := range m.Values {
			return m.Type + " " + formatMetric(value)
		}
	}
	const most = 10
	var values []string
	for _, name := range slices.Sorted(maps.Keys(m.Values)) {
		values = append(values, shorten(redact.Line(name), nameWidth)+" "+formatMetric(m.Values[name]))
	}
	if more := len(values) - most; more > 0 {
		values = append(values[:most], fmt.Sprintf("and %d more", more))
	}
	return m.Type + " of " + strings.Join(values, ", ")
}

func formatMetric(x float64) string { return fmt.Sprintf("%.4g", x) }
