package web

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/evalrun/evalrun/internal/report"
)

// whyDetail is the detail of a rollout whose row was opened in a list.
type whyDetail struct {
	// Title is like "small, epoch 1: failed, score 0.500".
	Title      string            `json:"title"`
	Why        string            `json:"why,omitempty"`
	Evaluators []reportEvaluator `json:"evaluators,omitempty"`
}

// why says why a rollout has its status and score, for a row that is opened in its list.
func (p *site) why(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	d, err := p.o.Service.Rollout(r.Context(), run.ID, r.PathValue("rollout"))
	if err != nil {
		return err
	}
	out := whyDetail{Title: fmt.Sprintf("%s, epoch %d: %s", d.Agent, d.Epoch, d.Row.Status)}
	if d.Score != nil {
		out.Title += ", score " + formatScore(d.Score)
	}
	out.Why, _ = cut(d.Why, maxValue)
	worst := report.WorstFirst(d.EvaluationRunResults)
	for _, e := range worst[:min(len(worst), maxScores)] {
		said, _ := cut(saidBy(e.Result), maxValue)
		out.Evaluators = append(out.Evaluators, reportEvaluator{Name: e.EvaluatorName,
			Score: formatScore(e.Result.Score), Said: said})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a client that is gone misses the answer
	return nil
}
