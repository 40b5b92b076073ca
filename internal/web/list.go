package web

import (
	"fmt"
	"slices"
	"strings"
)

// list is the list of the rollouts of a run, filtered and sorted. A page shows a part of it.
type list struct {
	Filter filter
	part
	Agents     []string
	Evaluators []evaluator
	Tags       []string
	Sorts      []choice
	// Found counts the chosen rollouts, of All.
	Found, All int
	// Groups is set in the view matrix, Rows in the view rollouts.
	Groups []groupRow
	Rows   []rolloutRow
	// OneScore is set if the matrix has a column for the scores of the only agent of the run, or of
	// the chosen one. With several agents each has its scores beside its marks: never one over all of
	// them.
	OneScore bool
	// Columns are the columns of the view rollouts that can be hidden, and ColumnKeys their keys.
	Columns    []column
	ColumnKeys string
	// Good is set if all rollouts have passed and no evaluator failed.
	Good bool
	// Matrix and Rollouts are links to the views, Clear is a link to the list without a filter.
	Matrix, Rollouts, Clear string
}

// column is a column of the view rollouts. Evaluator is set if it has the scores of an evaluator.
type column struct {
	Key, Name string
	Shown     bool
	Evaluator string
}

// addColumns adds the columns. Those of the evaluators stand between the score and the clocks.
func (l *list) addColumns() {
	var keys []string
	add := func(key, name, evaluator string) {
		keys = append(keys, key)
		l.Columns = append(l.Columns, column{key, name, l.Filter.Shows(key), evaluator})
	}
	add("agent", "Agent", "")
	add("epoch", "Epoch", "")
	add("score", "Score", "")
	for i, e := range l.Evaluators[:min(len(l.Evaluators), maxColumns)] {
		add(fmt.Sprintf("e%d", i), e.Name, e.ID)
	}
	add("working", "Working", "")
	add("waiting", "Waiting", "")
	add("reason", "First reason", "")
	l.ColumnKeys = strings.Join(keys, ",")
}

// By writes the score of an evaluator for the rollout.
func (r rolloutRow) By(evaluator string) string {
	if slices.Contains(r.Errors, evaluator) {
		return "error"
	}
	if score, ok := r.Scores[evaluator]; ok {
		return formatScore(&score)
	}
	return none
}

// groupRow is an evaluation with a cell for each of its rollouts.
type groupRow struct {
	Name, ID, URL string
	Tags          []string
	// Agents are the cells of each agent.
	Agents []agentCells
	// Score is set with one agent.
	Score *agentCells
	// Working is the sum over the rollouts of the agents that are chosen.
	Working int64
	// Reason is the reason of the rollout to look at first. Of names that rollout if there are
	// several.
	Reason, Of string
}

type agentCells struct {
	Agent string
	Cells []cell
	// Score is the reduced score of the epochs, ID the element that shows it.
	Score *float64
	ID    string
}

// cell is a rollout as a mark.
type cell struct {
	// Row is its place among all rollouts of the run.
	Row                int
	Status, URL, Label string
	// Dim is set if the filter leaves it out, Current if it is the rollout that the page shows.
	Dim, Current bool
}

// rolloutRow is a rollout with a row of its own.
type rolloutRow struct {
	row
	Row int
	URL string
}

func newList(o *overview, f filter) list {
	l := list{
		Filter: f, Agents: o.agents, Evaluators: o.evaluators, Tags: o.tags, Sorts: sorts, All: len(o.rows), Good: o.good(),
		Matrix:   f.with(func(f *filter) { f.View, f.Page = "matrix", 1 }),
		Rollouts: f.with(func(f *filter) { f.View, f.Page = "rollouts", 1 }), Clear: "?",
	}
	l.addColumns()
	from := f.from()
	if f.View == "rollouts" {
		found := f.rollouts(o)
		l.Found, l.part = len(found), f.partOf(len(found), pageRows)
		for _, at := range found[l.From-1 : l.To] {
			l.Rows = append(l.Rows, rolloutRow{o.rows[at], at, o.url(at, from)})
		}
		return l
	}
	agents, groups := f.places(o), f.groups(o)
	l.OneScore = len(agents) == 1
	for _, g := range groups {
		l.Found += len(g.chosen)
	}
	l.part = f.partOf(len(groups), o.matrixRows())
	for _, g := range groups[l.From-1 : l.To] {
		l.Groups = append(l.Groups, o.groupRow(g, agents, from))
	}
	return l
}

// matrixRows is the most evaluations that a page shows: fewer if each has many rollouts.
func (o *overview) matrixRows() int {
	most := 1
	for i := range o.evaluations {
		most = max(most, len(o.evaluations[i].rows))
	}
	return min(pageRows, max(1, pageCells/most))
}

func (o *overview) groupRow(g group, agents []int, from string) groupRow {
	out := groupRow{Name: g.Name, ID: g.ID, Tags: g.Tags, Working: g.working}
	out.Agents = o.cells(g.evaluation, from, func(at int) bool { return g.chosen[at] }, -1)
	for i := range out.Agents {
		out.Agents[i].Score, out.Agents[i].ID = g.pairs[i].score, fmt.Sprintf("p%d-%d", o.rows[g.rows[0]].evaluation, i)
	}
	if len(agents) == 1 {
		out.Score = &out.Agents[agents[0]]
	}
	first := -1
	for _, at := range g.rows {
		if g.chosen[at] && (first < 0 || o.before(at, first)) {
			first = at
		}
	}
	r := &o.rows[first]
	if out.Reason = r.Reason; r.Reason != "" && len(g.rows) > 1 {
		out.Of = fmt.Sprintf("%s %d", r.Agent, r.Epoch)
	}
	out.URL = o.url(first, from)
	return out
}

// before reports whether one rollout of an evaluation comes before another in the order to look at
// them: those with a reason first, and of these the failed ones.
func (o *overview) before(a, b int) bool {
	x, y := &o.rows[a], &o.rows[b]
	if (x.Reason != "") != (y.Reason != "") {
		return x.Reason != ""
	}
	return x.rank() < y.rank()
}

// cells returns the rollouts of an evaluation by agent, at most pageCells of them.
func (o *overview) cells(e *evaluation, from string, chosen func(at int) bool, current int) []agentCells {
	out := make([]agentCells, len(o.agents))
	for i, name := range o.agents {
		out[i].Agent = name
	}
	for n, at := range e.rows {
		if n == pageCells {
			break
		}
		r := &o.rows[at]
		label := fmt.Sprintf("%s, epoch %d: %s", r.Agent, r.Epoch, r.Status)
		if r.Score != nil {
			label += ", score " + formatScore(r.Score)
		}
		a := &out[r.agent]
		a.Cells = append(a.Cells, cell{at, r.Status, o.url(at, from), label, !chosen(at), at == current})
	}
	return out
}
