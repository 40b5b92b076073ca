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
	// A and B are RUN or RUN:AGENT. They, Margin and By are as in the query.
	A, B, Margin, By string
	Different        bool
	// Problem says why there is no comparison, and Differences what differs. Allow is a link to the
	// comparison of different sets.
	Problem     string
	Differences []string
	Allow       string
	// Offline is set in a file, which cannot make requests and which has room for all items.
	Offline bool
	Doc     *compare.Document
	// Same is set if both sides are the same run and agents.
	Same bool
	// Offers are the newest runs, if a side is still to be chosen.
	Offers []offeredRun
	Gates  []compareGate
	First  *compareRow
	Rows   []compareRow
	// Each has the verdicts on the agents if there are several. There is no verdict over all of them.
	Each []agentCompared
	// Limits say how far the figures can be trusted, and McNemar the result of that test.
	Limits  []string
	McNemar []string
	// Parts says which parts of the lists are shown, from 1.
	Parts     map[string]int
	Regressed itemList
	Improved  itemList
}

// compareRow is one figure. Its interval is drawn on an axis that all rows share.
type compareRow struct {
	*compare.Row
	Scale float64
}

// itemList lists evaluations that became worse, or better.
type itemList struct {
	part
	Items []comparedItem
	// Agents is set if there are several agents.
	Agents bool
	// Label is the name of the list.
	Label string
}

// comparedItem is an evaluation that differs, with the results of both sides.
type comparedItem struct {
	compare.Item
	row *compareRow
	// URL is empty in a file.
	URL string
	// MarksA and MarksB are the epochs of both sides.
	MarksA, MarksB []cell
}

// agentCompared is the comparison of one agent.
type agentCompared struct {
	Agent string
	Row   *compareRow
	// URL leads to the comparison of this agent alone.
	URL string
}

// compareGate is a gate and how it was judged.
type compareGate struct{ Verdict, Sentence string }

// offeredRun is a run that can be a side. A and B are links that make it that side. They are empty
// if that side is chosen already.
type offeredRun struct {
	ID, Name  string
	CreatedAt time.Time
	A, B      string
}

// At returns the place of a difference in the drawing.
func (r compareRow) At(v float64) string { return percent(0.5 + 0.48*v/r.Scale) }

// Figure names the figure of the row for people.
func (r compareRow) Figure() string {
	switch {
	case r.Name != "":
		return r.Name
	case r.By == "passRate":
		return "pass rate"
	}
	return strings.TrimPrefix(r.By, "evaluator:")
}

// Value writes a value of the figure.
func (r compareRow) Value(v float64) string { return report.Figure(r.By, v) }

// Signed writes a difference of the figure with its sign.
func (r compareRow) Signed(v float64) string {
	sign := "+"
	if v < 0 {
		sign = "-"
	}
	return sign + report.Figure(r.By, math.Abs(v))
}

// Percent is the probability of finding the least difference.
func (r compareRow) Percent() float64 { return 100 * r.Power }

// query returns the query of the page's URL.
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
