package web

import (
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
)

// interval is a figure from 0 to 1 with its interval, as a drawing and as text.
type interval struct {
	Class            string
	Value, Low, High *float64
	// Min is a least value. OpenLow and OpenHigh say how far the interval can still move.
	Min, OpenLow, OpenHigh *float64
}

type estimateOf = stats.Estimate

func intervalOf(e stats.Estimate) interval { return interval{Value: e.Mean, Low: e.Low, High: e.High} }

// gateEstimate returns the figure of an agent by which a threshold is judged, nil if there is none.
func gateEstimate(a summary.AgentSummary, what string) *stats.Estimate {
	switch what {
	case "score", "scoreWithFaulted":
		return &a.Score
	case "passRate":
		return &a.PassRate
	}
	for _, e := range a.Evaluators {
		if "evaluators."+e.ID == what {
			return &e.Estimate
		}
	}
	return nil
}

// At returns the place of a value in the drawing, which leaves room at both ends.
func (interval) At(v *float64) string { return percent(0.01 + 0.98*min(max(*v, 0), 1)) }

// Label says what the drawing shows.
func (i interval) Label() string {
	if i.Value == nil {
		return "no data"
	}
	if i.Low == nil {
		return formatScore(i.Value) + ", no interval"
	}
	return formatScore(i.Value) + ", interval " + formatScore(i.Low) + " to " + formatScore(i.High)
}

// Text is the text beside the drawing.
func (i interval) Text() string {
	var out []string
	if i.Value == nil {
		out = append(out, "no data")
	}
	if i.Low != nil && i.High != nil {
		out = append(out, formatScore(i.Low)+" – "+formatScore(i.High))
	}
	if i.OpenLow != nil {
		out = append(out, "open: "+formatScore(i.OpenLow)+" – "+formatScore(i.OpenHigh))
	}
	if len(out) == 0 {
		return "no interval"
	}
	return strings.Join(out, ", ")
}
