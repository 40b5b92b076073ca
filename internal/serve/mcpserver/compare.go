package mcpserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

const compareDescription = `Compare two runs of an eval set, or two agents of one run: what became worse, and whether it is more than chance. ` +
	`noWorseThan and betterThan are gates on the first figure, judged by its 95 % interval; verdict says whether they are met.`

const compareSchema = `{"type":"object","additionalProperties":false,"required":["baseline","candidate"],"properties":{` +
	`"baseline":{"description":"the id of a run","type":"string"},` +
	`"candidate":{"description":"the id of a run; that of the baseline, to compare two of its agents","type":"string"},` +
	`"baselineAgent":{"type":"string"},"candidateAgent":{"type":"string"},` +
	`"by":{"description":"score, passRate, evaluator:ID, tokens or cost; all of them if left out; the first one decides","type":"array","items":{"type":"string"}},` +
	`"noWorseThan":{"type":"number","minimum":0,"maximum":1},"betterThan":{"type":"number","minimum":0,"maximum":1},` +
	`"allowDifferentSets":{"description":"compare what both have, although their evaluations or evaluators differ","type":"boolean"}}}`

// largestComparison is how many evaluations each list of a comparison has at most. The most
// important come first.
const largestComparison = 50

// comparisons is the tool that compares runs.
type comparisons struct{ service *service.Service }

func (c *comparisons) tools() []tool {
	return []tool{{name: "compare", scope: access.Read, description: compareDescription, schema: compareSchema,
		annotations: reads, call: c.compare}}
}

// compareArguments are the arguments of compare.
type compareArguments struct {
	Baseline           string   `json:"baseline"`
	Candidate          string   `json:"candidate"`
	BaselineAgent      string   `json:"baselineAgent"`
	CandidateAgent     string   `json:"candidateAgent"`
	By                 []string `json:"by"`
	NoWorseThan        *float64 `json:"noWorseThan"`
	BetterThan         *float64 `json:"betterThan"`
	AllowDifferentSets bool     `json:"allowDifferentSets"`
}

// comparison is the tool's result: the document of a comparison with shortened lists.
type comparison struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	*compare.Document
	// LeftOut counts the items that are missing from the lists.
	LeftOut int `json:"leftOut,omitempty"`
}

// compare is the tool.
func (c *comparisons) compare(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	var a compareArguments
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	for name, share := range map[string]*float64{"noWorseThan": a.NoWorseThan, "betterThan": a.BetterThan} {
		if share != nil && !(*share >= 0 && *share <= 1) {
			return nil, &argumentError{name + ": expected a number from 0 to 1"}
		}
	}
	baseline, err := c.side(ctx, a.Baseline, a.BaselineAgent)
	if err != nil {
		return nil, err
	}
	candidate, err := c.side(ctx, a.Candidate, a.CandidateAgent)
	if err != nil {
		return nil, err
	}
	d, err := runner.Compare(baseline, candidate,
		compare.Options{By: a.By, NoWorseThan: a.NoWorseThan, BetterThan: a.BetterThan,
			AllowDifferentSets: a.AllowDifferentSets, Settings: stats.DefaultSettings})
	if errors.Is(err, compare.ErrNoPairs) {
		return nil, &argumentError{err.Error()}
	}
	if err != nil {
		return nil, err
	}
	out := comparison{Document: d}
	verdict, reason := runner.VerdictOf(d, runner.Undecided)
	out.Verdict, out.Reason = verdict.String(), reason
	out.LeftOut = shorten(&d.Items) + shorten(&d.Missing) + shorten(&d.OnlyA) + shorten(&d.OnlyB)
	return out, nil
}

// side reads a run as a side of a comparison.
func (c *comparisons) side(ctx context.Context, runID, agent string) (s compare.Side, err error) {
	err = c.service.Report(ctx, runID, func(r *runner.Report) (err error) {
		s, err = r.Side(agent)
		return err
	})
	return s, unknownRun(runID, err)
}

// shorten keeps the first items of a list, and returns how many were left out.
func shorten[T any](list *[]T) (leftOut int) {
	leftOut = max(len(*list)-largestComparison, 0)
	*list = (*list)[:len(*list)-leftOut]
	return leftOut
}
