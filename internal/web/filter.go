package web

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// filter is the state of a list of rollouts, as the query of the page's URL has it. Names are as
// plain writes them: a page has no other characters.
type filter struct {
	Q string
	// Statuses, Agent, Evaluator (an id; it chooses scores below 1 and errors) and Tag choose
	// rollouts. Empty ones choose all.
	Statuses  []string
	Agent     string
	Evaluator string
	Tag       string
	// Sort is one of sorts, View matrix or rollouts.
	Sort string
	View string
	// Hide are the columns of the view rollouts that are not shown, by their keys.
	Hide []string
	// Page counts from 1.
	Page int
}

// choice is an entry of a select.
type choice struct{ Value, Name string }

var sorts = []choice{
	{"failed", "failed first"}, {"set", "order of the set"}, {"score", "lowest score first"},
	{"flaky", "flakiest first"}, {"time", "longest working"}, {"wait", "longest waiting"},
}

// readFilter reads a query. It ignores values that it does not know, so that an old link shows
// something.
func readFilter(q url.Values) filter {
	f := filter{
		Q: strings.ToLower(strings.TrimSpace(q.Get("q"))), Agent: q.Get("agent"), Evaluator: q.Get("evaluator"),
		Tag: q.Get("tag"), Sort: "failed", View: "matrix", Page: 1,
	}
	for _, s := range statuses {
		if slices.ContainsFunc(q["status"], func(v string) bool { return slices.Contains(strings.Split(v, ","), s) }) {
			f.Statuses = append(f.Statuses, s)
		}
	}
	if slices.ContainsFunc(sorts, func(c choice) bool { return c.Value == q.Get("sort") }) {
		f.Sort = q.Get("sort")
	}
	if q.Get("view") == "rollouts" {
		f.View = "rollouts"
	}
	f.Hide = readHidden(q)
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 {
		f.Page = n
	}
	return f
}

// maxColumns is the most evaluators that have a column of their own in the view rollouts.
const maxColumns = 12

// columnKeys are the keys of the columns of the view rollouts that can be hidden. An evaluator's
// key is its place.
var columnKeys = func() []string {
	keys := []string{"agent", "epoch", "score"}
	for i := range maxColumns {
		keys = append(keys, "e"+strconv.Itoa(i))
	}
	return append(keys, "working", "waiting", "reason")
}()

// readHidden reads which columns are hidden. The parameter hide names them. A form without script
// names all columns in columns and the shown ones in column.
func readHidden(q url.Values) (out []string) {
	hidden := strings.Split(q.Get("hide"), ",")
	if q.Has("columns") {
		hidden = slices.DeleteFunc(strings.Split(q.Get("columns"), ","), func(key string) bool {
			return slices.Contains(q["column"], key)
		})
	}
	for _, key := range columnKeys {
		if slices.Contains(hidden, key) {
			out = append(out, key)
		}
	}
	return out
}

// Shows reports whether a column is shown.
func (f filter) Shows(key string) bool { return !slices.Contains(f.Hide, key) }

// Status returns the chosen statuses as the query has them.
func (f filter) Status() string { return strings.Join(f.Statuses, ",") }

// query returns the filter as a query, without its defaults.
func (f filter) query() url.Values {
	q := url.Values{}
	set := func(key, value, usual string) {
		if value != usual {
			q.Set(key, value)
		}
	}
	set("q", f.Q, "")
	set("status", f.Status(), "")
	set("agent", f.Agent, "")
	set("evaluator", f.Evaluator, "")
	set("tag", f.Tag, "")
	set("sort", f.Sort, "failed")
	set("view", f.View, "matrix")
	set("hide", strings.Join(f.Hide, ","), "")
	set("page", strconv.Itoa(f.Page), "1")
	return q
}

// with returns a link to the list with a changed filter.
func (f filter) with(change func(*filter)) string {
	f.Statuses = slices.Clone(f.Statuses)
	change(&f)
	return "?" + f.query().Encode()
}

// toggled returns a link that adds a status to the chosen ones, or removes it.
func (f filter) toggled(status string) string {
	return f.with(func(f *filter) {
		f.Page = 1
		if i := slices.Index(f.Statuses, status); i >= 0 {
			f.Statuses = slices.Delete(f.Statuses, i, i+1)
		} else {
			f.Statuses = append(f.Statuses, status)
		}
	})
}

// chooses reports whether the filter chooses a rollout.
func (f filter) chooses(r *row) bool {
	switch {
	case len(f.Statuses) > 0 && !slices.Contains(f.Statuses, r.Status),
		f.Agent != "" && plain(r.Agent) != f.Agent,
		f.Tag != "" && !slices.ContainsFunc(r.Tags, func(t string) bool { return plain(t) == f.Tag }):
		return false
	}
	if f.Evaluator != "" && !below(r, f.Evaluator) {
		return false
	}
	if f.Q == "" {
		return true
	}
	return strings.Contains(strings.ToLower(r.EvaluationID), f.Q) ||
		strings.Contains(strings.ToLower(r.EvaluationName), f.Q) ||
		strings.Contains(strings.ToLower(r.Reason), f.Q) || strings.HasPrefix(r.RolloutID, f.Q)
}

// below reports whether an evaluator has given a rollout less than the best score, or failed.
func below(r *row, evaluator string) bool {
	if slices.ContainsFunc(r.Errors, func(id string) bool { return plain(id) == evaluator }) {
		return true
	}
	for id, score := range r.Scores {
		if plain(id) == evaluator {
			return score < 1
		}
	}
	return false
}

// rollouts returns the chosen rollouts, by their places among the rows, in the order of the filter.
func (f filter) rollouts(o *overview) []int {
	var out []int
	for i := range o.rows {
		if f.chooses(&o.rows[i]) {
			out = append(out, i)
		}
	}
	var pairs [][]pair
	if f.Sort == "flaky" {
		pairs = make([][]pair, len(o.evaluations))
		for i := range pairs {
			pairs[i] = o.pairs(&o.evaluations[i])
		}
	}
	key := func(i int) float64 {
		r := &o.rows[i]
		switch f.Sort {
		case "failed":
			return float64(r.rank())
		case "score":
			return orLast(r.Score)
		case "flaky":
			return -pairs[r.evaluation][r.agent].spread
		case "time":
			return -float64(r.Clocks.WorkingMs)
		case "wait":
			return -float64(r.Clocks.WaitingMs)
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	return out
}

// group is an evaluation with at least one chosen rollout.
type group struct {
	*evaluation
	// chosen has the chosen rows of the evaluation.
	chosen map[int]bool
	pairs  []pair
	// working and waiting are the sums over the rollouts of the agents that are chosen.
	working, waiting int64
}

// groups returns the evaluations with chosen rollouts, in the order of the filter.
func (f filter) groups(o *overview) []group {
	var out []group
	agents := f.places(o)
	for i := range o.evaluations {
		g := group{evaluation: &o.evaluations[i], chosen: map[int]bool{}}
		for _, at := range g.rows {
			if f.chooses(&o.rows[at]) {
				g.chosen[at] = true
			}
		}
		if len(g.chosen) == 0 {
			continue
		}
		g.pairs = o.pairs(g.evaluation)
		for _, i := range agents {
			g.working += g.pairs[i].working
			g.waiting += g.pairs[i].waiting
		}
		out = append(out, g)
	}
	key := func(g group) float64 {
		switch f.Sort {
		case "failed":
			first := math.Inf(1)
			for at := range g.chosen {
				first = min(first, float64(o.rows[at].rank()))
			}
			return first
		case "score":
			return orLast(lowest(g.pairs, agents))
		case "flaky":
			return -flakiest(g.pairs, agents)
		case "time":
			return -float64(g.working)
		case "wait":
			return -float64(g.waiting)
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b group) int { return cmp.Compare(key(a), key(b)) })
	return out
}

// orLast returns a score, or infinity if there is none.
func orLast(score *float64) float64 {
	if score == nil {
		return math.Inf(1)
	}
	return *score
}

// part is the part of a list that a page shows.
type part struct {
	From, To, Of   int
	Previous, Next string
}

// partOf returns the page of a list of length of that the filter asks for, or the last one.
func (f filter) partOf(of, size int) part {
	return partOfList(of, size, f.Page, func(n int) string { return f.with(func(f *filter) { f.Page = n }) })
}

// partOfList returns a page of a list of length of, or the last one. link makes a link to a page.
func partOfList(of, size, page int, link func(page int) string) part {
	page = max(1, min(page, (of+size-1)/size))
	p := part{From: (page-1)*size + 1, To: min(page*size, of), Of: of}
	if page > 1 {
		p.Previous = link(page - 1)
	}
	if p.To < of {
		p.Next = link(page + 1)
	}
	return p
}

// from returns the query that lets a rollout's page remember the list before it.
func (f filter) from() string {
	q := f.query()
	if len(q) == 0 {
		return ""
	}
	return url.Values{"from": {q.Encode()}}.Encode()
}

// The limits of a page, which keep it below 5,000 elements for every run.
const (
	pageRows  = 100
	pageCells = 900
	maxGates  = 60
	maxFlaky  = 100
	// maxIntervals is the most intervals of evaluators that are drawn.
	maxIntervals = 120
)

// pageRuns is the most runs that a page has.
const pageRuns = 50

// places returns the places of the agents that the filter chooses.
func (f filter) places(o *overview) (out []int) {
	for i, name := range o.agents {
		if f.Agent == "" || plain(name) == f.Agent {
			out = append(out, i)
		}
	}
	return out
}
