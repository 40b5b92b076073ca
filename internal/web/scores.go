package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// addScores adds the evaluators, the worst first.
func (page *rolloutPage) addScores() {
	for _, e := range page.EvaluationRunResults {
		if len(page.Scores) == maxScores {
			break
		}
		row := scoreRow{Evaluated: e, Status: "unscored", Took: time.Duration(e.Result.EvaluationTime * float64(time.Second))}
		best := cmp.Or(e.Result.Scale, 1)
		switch s := e.Result.Score; {
		case s == nil && e.Result.Error != "":
			row.Status = "faulted"
		case s != nil && *s >= best:
			row.Status = "passed"
		case s != nil:
			row.Status = "failed"
		}
		row.explain()
		if row.Status == "failed" && row.saysNothing() {
			row.Log = page.Verifier
		}
		page.Scores = append(page.Scores, row)
	}
	order := func(r scoreRow) float64 {
		switch {
		case r.Result.Error != "":
			return -2
		case r.Result.Score == nil:
			return -1
		}
		return *r.Result.Score / cmp.Or(r.Result.Scale, 1)
	}
	slices.SortStableFunc(page.Scores, func(a, b scoreRow) int { return cmp.Compare(order(a), order(b)) })
}

// addScoring says which evaluators count more or less than others, and which score a rollout needs
// to pass.
func (page *rolloutPage) addScoring(o *overview) {
	if len(page.Scores) == 0 {
		return
	}
	var weights []string
	for _, e := range o.agentSummaries()[0].Evaluators {
		here := slices.ContainsFunc(page.EvaluationRunResults, func(r schemas.Evaluated) bool {
			return r.EvaluatorID == e.ID
		})
		if here && e.Weight != 1 {
			weights = append(weights, fmt.Sprintf("%s %g", e.Name, e.Weight))
		}
	}
	if len(weights) > 0 {
		page.Scoring = append(page.Scoring, "The score is a weighted mean. Weights other than 1: "+
			strings.Join(weights, ", ")+".")
	}
	if o.pass != 1 || page.Row.Status == "failed" {
		page.Scoring = append(page.Scoring, "A rollout passes with a score of "+formatScore(&o.pass)+" or more.")
	}
}

// explain says why the row has its score.
func (row *scoreRow) explain() {
	row.Votes = votesOf(row.Result)
	if row.Result.Error != "" {
		row.Failed = ending(row.Result.Error, maxValue)
		return
	}
	if row.Status == "passed" && row.Votes == nil {
		row.Line = row.inLine()
		return
	}
	if c := row.Result.Comparison; c != nil && isScalar(c.Expected) && isScalar(c.Actual) {
		row.Compared, row.Expected, row.Actual = true, []word{{Text: brief(c.Expected)}}, []word{{Text: brief(c.Actual)}}
		if c.Relation == eval.Equals {
			row.Expected, row.Actual = words(row.Expected[0].Text, row.Actual[0].Text)
		}
		return
	}
	if l := leavesOf(row.Result.Comparison); l != nil && len(l.Rows) > 0 {
		row.Leaves = l
		return
	}
	switch {
	case row.Votes != nil && len(row.Votes.Said) > 0:
	case row.Result.NotRun == "":
		row.Findings = report.Findings(row.Result)
	}
}

// inLine says in one line why an evaluator gave its best score.
func (row *scoreRow) inLine() string {
	c := row.Result.Comparison
	switch {
	case c != nil && isScalar(c.Expected) && isScalar(c.Actual):
		return short(fmt.Sprintf("%s %s", c.Relation, brief(c.Expected)), inLine)
	case c != nil:
		if l := leavesOf(c); l != nil && l.Of > 0 {
			return fmt.Sprintf("leaves equal: %d of %d", l.Equal, l.Of)
		}
	}
	var said struct {
		Actual, Expected json.RawMessage
		Leaves           json.RawMessage `json:"total_leaves"`
	}
	switch {
	case len(row.Result.Details) == 0:
		return ""
	case json.Unmarshal(row.Result.Details, &said) == nil &&
		said.Actual != nil && said.Expected != nil && said.Leaves == nil:
		return "as expected: " + short(pythonList.Replace(brief(said.Expected)), inLine)
	}
	return short(inWords(row.Result.Details), inLine)
}

// saysNothing reports whether a row has nothing but its score.
func (row *scoreRow) saysNothing() bool {
	return row.Line == "" && row.Failed == "" && row.Result.NotRun == "" &&
		!row.Compared && row.Leaves == nil && len(row.Findings) == 0 && row.Votes == nil
}

// inWords writes the words of an evaluator: a text as it is, and an object as its members, by name.
func inWords(raw json.RawMessage) string {
	if text := stringOf(raw); text != "" {
		return text
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return readable(string(raw))
	}
	if same := agreed(members); same != "" {
		return same
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		out = append(out, name+": "+cmp.Or(stringOf(members[name]), readable(string(members[name]))))
	}
	return strings.Join(out, "; ")
}

// brief writes a value in one line: a text as it is, anything else as JSON.
func brief(raw json.RawMessage) string {
	if text := stringOf(raw); text != "" {
		return short(text, 400)
	}
	return short(readable(string(raw)), 400)
}

// pythonList rewrites lists of texts, which some evaluators give as Python prints them, for people.
var pythonList = strings.NewReplacer("['", "", "', '", ", ", "']", "")

// agreed says in one line what an evaluator found to be equal: how many leaves of two values, or
// one value. It is empty if the details say something else.
func agreed(members map[string]json.RawMessage) string {
	if of := members["total_leaves"]; of != nil && members["matched_leaves"] != nil {
		return fmt.Sprintf("leaves equal: %s of %s", members["matched_leaves"], of)
	}
	if actual := members["actual"]; len(members) == 2 && actual != nil && string(actual) == string(members["expected"]) {
		return brief(actual)
	}
	return ""
}

// addNotScored says why there is no score, and which evaluators had no criterion.
func (page *rolloutPage) addNotScored(o *overview) {
	reason := page.Row.Reason
	switch page.Status {
	case schemas.StatePending:
		page.NotScored = "It has not begun."
		if place, of := o.queue(page.RolloutID); place > 0 {
			page.NotScored = fmt.Sprintf("It has not begun: it is number %d of %d in the queue of this run.", place, of)
		}
	case schemas.StateRunning:
		page.NotScored = "Not scored yet: its agent runs, and no evaluator sees an unfinished rollout."
	case schemas.StateEvaluating:
		page.NotScored = "Its agent has ended. The evaluators are being asked."
	case schemas.StateScoring:
		page.NotScored = "Its agent has ended, and a score is waited for."
	case schemas.StateCancelled:
		page.NotScored = "It was cancelled, and is not scored."
	case schemas.StateCompleted:
		page.addNoCriterion(o)
		page.NotScored = "No evaluator has given a result."
		if reason != "" {
			page.NotScored = "No score: " + strings.TrimRight(reason, ".…") + "."
		}
	case schemas.StateFaulted:
		page.NotScored = "No evaluator has seen it: " + cmp.Or(strings.TrimRight(reason, ".…"), "it has faulted") + "."
	default:
		page.NotScored = "No evaluator has seen it: it waits for an answer or a job."
	}
}

func (page *rolloutPage) addNoCriterion(o *overview) {
	for _, e := range o.evaluators {
		_, has := page.Criteria[e.ID]
		asked := slices.ContainsFunc(page.EvaluationRunResults, func(r schemas.Evaluated) bool {
			return r.EvaluatorID == e.ID
		})
		if !has && !asked {
			page.NoCriterion = append(page.NoCriterion, cmp.Or(e.Name, e.ID))
		}
	}
}

// queue returns the place of a rollout among those that have not begun, in the order in which they
// begin, and their number. It returns 0 if the rollout has begun.
func (o *overview) queue(rolloutID string) (place, of int) {
	for i := range o.rows {
		if o.rows[i].Status != string(schemas.StatePending) {
			continue
		}
		of++
		if o.rows[i].RolloutID == rolloutID {
			place = of
		}
	}
	return place, of
}

// ending returns the end of a text that is longer than most characters.
func ending(text string, most int) string {
	n := len([]rune(text))
	if n <= most {
		return text
	}
	return "…" + string([]rune(text)[n-most:])
}
