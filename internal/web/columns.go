package web

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
)

// columns has the rollouts of a run without their texts, in one array per column, so that the
// script filters and sorts without another request.
type columns struct {
	Revision    int64        `json:"revision"`
	Base        string       `json:"base"`
	Agents      []string     `json:"agents"`
	Evaluators  []evaluator  `json:"evaluators"`
	Statuses    []string     `json:"statuses"`
	Evaluations []evaluation `json:"evaluations"`
	Strings     []string     `json:"strings"`
	// MatrixRows is the most evaluations that a page shows.
	MatrixRows int `json:"matrixRows"`
	// Reduced and Spread are the scores and the spreads of each evaluation by agent, in millionths.
	Reduced [][]int `json:"reduced"`
	Spread  [][]int `json:"spread"`
	Columns struct {
		ID         []string `json:"id"`
		Evaluation []int    `json:"evaluation"`
		Agent      []int    `json:"agent"`
		Epoch      []int    `json:"epoch"`
		Status     []int    `json:"status"`
		// Score and Scores (of each evaluator) are in millionths, -1 if there is none. Scores
		// are -2 if the evaluator failed.
		Score   []int   `json:"score"`
		Scores  [][]int `json:"scores"`
		Working []int64 `json:"working"`
		Waiting []int64 `json:"waiting"`
		// Why is the reason as a place in Strings.
		Why []int `json:"why"`
	} `json:"columns"`
}

func newColumns(o *overview) *columns {
	d := &columns{
		Revision: o.head.Revision, Base: "/runs/" + o.head.RunID + "/rollouts/", Agents: o.agents,
		Evaluators: o.evaluators, Statuses: statuses, Evaluations: o.evaluations, Strings: []string{""},
		MatrixRows: o.matrixRows(),
	}
	place := map[string]int{"": 0}
	status := map[string]int{}
	for i, s := range statuses {
		status[s] = i
	}
	for i := range o.evaluations {
		scores, spreads := pairColumns(o.pairs(&o.evaluations[i]))
		d.Reduced, d.Spread = append(d.Reduced, scores), append(d.Spread, spreads)
	}
	c := &d.Columns
	c.Scores = make([][]int, len(o.evaluators))
	for i := range o.rows {
		r := &o.rows[i]
		at, ok := place[r.Reason]
		if !ok {
			at = len(d.Strings)
			place[r.Reason], d.Strings = at, append(d.Strings, r.Reason)
		}
		c.ID, c.Evaluation, c.Agent, c.Epoch =
			append(c.ID, r.RolloutID), append(c.Evaluation, r.evaluation),
			append(c.Agent, r.agent), append(c.Epoch, r.Epoch)
		c.Status, c.Why = append(c.Status, status[r.Status]), append(c.Why, at)
		c.Score = append(c.Score, millionths(r.Score))
		c.Working, c.Waiting = append(c.Working, r.Clocks.WorkingMs), append(c.Waiting, r.Clocks.WaitingMs)
		for k, e := range o.evaluators {
			score, ok := r.Scores[e.ID]
			switch {
			case slices.Contains(r.Errors, e.ID):
				c.Scores[k] = append(c.Scores[k], -2)
			case ok:
				c.Scores[k] = append(c.Scores[k], millionths(&score))
			default:
				c.Scores[k] = append(c.Scores[k], -1)
			}
		}
	}
	return d
}

// columns answers with the columns of a run.
func (p *site) columns(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	o, err := p.overviewOf(r.Context(), run)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // gzip knows this level
		defer func() { _ = z.Close() }()               // a client that is gone misses the answer
		out = z
	}
	_ = json.NewEncoder(out).Encode(newColumns(o))
	return nil
}
