package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// Row is one rollout as a list shows it.
type Row struct {
	RolloutID      string
	EvaluationID   string
	EvaluationName string
	Agent          string
	Epoch          int
	Tags           []string
	// Status is passed, failed or unscored for a completed rollout, else its state.
	Status string
	Score  *float64
	// Scores has the scores from 0 to 1 of the evaluators that gave one, by their ids.
	Scores map[string]float64
	// Errors has the ids of the evaluators that failed, so that the score leaves them out.
	Errors []string
	// AgentsFault is set if it faulted by a failure of the agent: the statistics count it as 0.
	// Outdated is set if it is to be scored again: the statistics wait for it.
	AgentsFault, Outdated bool
	Clocks                schemas.Clocks
	// Reason says in one line why it has not passed, what it waits for, or which evaluator failed.
	// It is empty if there is no reason, or none yet.
	Reason string
}

// Rows calls f for every rollout in the order of the plan.
func (r *Report) Rows(f func(Row) error) error {
	return r.Rollouts(func(one *schemas.Rollout) error { return f(r.RowOf(one)) })
}

// StatusOf returns the status of a rollout as a list shows it.
func (r *Report) StatusOf(one *schemas.Rollout) string { return string(r.verdict(one)) }

// RowOf returns a rollout of the report as a list shows it.
func (r *Report) RowOf(one *schemas.Rollout) Row {
	v := r.verdict(one)
	row := Row{
		RolloutID: one.RolloutID, EvaluationID: one.EvaluationID, EvaluationName: one.EvaluationName,
		Agent: one.Agent, Epoch: one.Epoch, Tags: one.Tags, Status: string(v), Score: one.Score,
		Scores: map[string]float64{}, Clocks: one.Clocks, AgentsFault: agentsFault(one), Outdated: one.Outdated,
	}
	if strings.TrimSpace(row.EvaluationName) == "" {
		row.EvaluationName = one.EvaluationID
	}
	for _, e := range one.EvaluationRunResults {
		if e.IsLineResult {
			continue
		}
		if e.Result.Score == nil {
			if e.Result.Error != "" {
				row.Errors = append(row.Errors, e.EvaluatorID)
			}
			continue
		}
		score := *e.Result.Score
		if e.Result.Scale > 0 {
			score /= e.Result.Scale
		}
		row.Scores[e.EvaluatorID] = score
	}
	row.Reason = firstReason(v, one)
	if v == failed && !hasFinding(one) {
		if last := r.verifierEnd(one); len(last) > 0 {
			row.Reason = shorten(redact.Line(row.Reason+": "+telling(last)), reasonWidth)
		}
	}
	return row
}

// hasFinding reports whether an evaluator says anything about a score that is not the best.
func hasFinding(one *schemas.Rollout) bool {
	return slices.ContainsFunc(one.EvaluationRunResults, func(e schemas.Evaluated) bool {
		s := e.Result.Score
		return s != nil && *s < cmp.Or(e.Result.Scale, 1) && len(findings(e.Result)) > 0
	})
}

// telling returns the last of some lines that is more than a frame, as test runners draw one around
// their summary.
func telling(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if text := strings.Trim(line, "=-_#* "); text != "" && text == strings.TrimSpace(line) {
			return text
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

// agentsFault reports whether a rollout has faulted by a failure of the agent.
func agentsFault(one *schemas.Rollout) bool {
	if one.Error == nil || one.Status != schemas.StateFaulted {
		return false
	}
	owner := fault.Owner(one.FaultOwner)
	if owner == "" { // an earlier version does not say
		owner = fault.Category(one.Error.Category).Owner()
	}
	return owner == fault.OwnerAgent
}

// firstReason returns the first thing that the explanation of a rollout with this verdict says.
func firstReason(v verdict, one *schemas.Rollout) string {
	var f failure
	switch {
	case v == passed && !EvaluatorFailed(one):
		return ""
	case waits(one):
		return waitingFor(one)
	case one.Error != nil:
		f.fault(one.Error)
	case v == passed, v == failed, v == unscored:
		f.evaluators(one)
	}
	if len(f.reasons) == 0 {
		return ""
	}
	text := f.reasons[0]
	if len(f.reasons) > 1 && strings.HasPrefix(f.reasons[1], "  ") { // the finding of an evaluator
		text += ": " + strings.TrimSpace(f.reasons[1])
	}
	return shorten(redact.Line(text), reasonWidth)
}
