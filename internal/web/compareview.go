package web

import (
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/internal/report"
)

// comparePage is the comparison of two runs, or of two agents of one.
type comparePage struct {
	frame
	// A and B are RUN or RUN:AGENT, Margin and By as the query has them.
	A, B, Margin, By string
	Different        bool
	// Problem says why there is no comparison, and Differences what differs. Allow leads to one of
	// different sets all the same.
	Problem     string
	Differences []string
	Allow       string
	// Offline is set in a file, where nothing can be asked for and where all items have their place.
	Offline bool
	Doc     *compare.Document
	// Same says that both sides are the same run and agents.
	Same bool
	// Offers are the newest runs, where a side is still to be chosen.
	Offers []offeredRun
	Gates  []compareGate
	First  *compareRow
	Rows   []compareRow
	// Each are the verdicts on the agents, where there are several: there is none over all of them.
	Each []agentCompared
	// Limits say how far the figures can be trusted, and McNemar what that test finds.
	Limits  []string
	McNemar []string
	// Parts are which parts of the lists are shown, from 1.
	Parts     map[string]int
	Regressed itemList
	Improved  itemList
}

// compareRow is one figure. Its interval is drawn on an axis that all rows share.
type compareRow struct {
	*compare.Row
	Scale float64
}

// itemList are evaluations that became worse, or better.
type itemList struct {
	part
	Items []comparedItem
	// Agents says that there are several agents.
	Agents bool
	// Label is the name of the list.
	Label string
}

// comparedItem is an evaluation that differs, with what both sides have made of it.
type comparedItem struct {
	compare.Item
	row *compareRow
	// URL is empty in a file.
	URL string
	// MarksA and MarksB are the epochs of both sides.
	MarksA, MarksB []cell
}

// agentCompared is what a comparison says of one agent.
type agentCompared struct {
	Agent string
	Row   *compareRow
	// URL leads to the comparison of this agent alone.
	URL string
}

// compareGate is a gate and how it was judged.
type compareGate struct{ Verdict, Sentence string }

// offeredRun is a run that can be a side. A and B lead to it as that side, and are empty where that is
// chosen already.
type offeredRun struct {
	ID, Name  string
	CreatedAt time.Time
	A, B      string
}

// At is the place of a difference in the drawing.
func (r compareRow) At(v float64) string { return percent(0.5 + 0.48*v/r.Scale) }

// Figure is what the row compares, as a person calls it.
func (r compareRow) Figure() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.By == "passRate":
		return "pass rate"
	}
	return strings.TrimPrefix(r.By, "evaluator:")
}

// Value is a value of the figure, and Signed a difference with its sign.
func (r compareRow) Value(v float64) string { return report.Figure(r.By, v) }

// Signed is a difference of the figure with its sign.
func (r compareRow) Signed(v float64) string {
	sign := "+"
	if v < 0 {
		sign = "-"
	}
	return sign + report.Figure(r.By, math.Abs(v))
}

// Percent is the probability with which the least difference is found.
func (r compareRow) Percent() float64 { return 100 * r.Power }

// query leads to the page.
func (page *comparePage) query() url.Values {
	q := url.Values{"a": {page.A}, "b": {page.B}}
	for key, value := range map[string]string{"margin": page.Margin, "by": page.By} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if page.Different {
		q.Set("different", "1")
	}
	return q
}
