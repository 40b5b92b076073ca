package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
)

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
