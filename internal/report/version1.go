package report

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/schemas"
)

// statistics1 are the statistics of a document of version 1. There the score left faulted rollouts
// out, scoreWithFaulted counted all of them as 0, those of the environment too, and a pass rate was
// the share of the evaluations whose reduced score passes.
type statistics1 struct {
	Rollouts    summary.RolloutCounts `json:"rollouts"`
	Evaluations struct {              // those that faulted were counted among the unscored
		Total      int `json:"total"`
		Scored     int `json:"scored"`
		Incomplete int `json:"incomplete"`
	} `json:"evaluations"`
	Score            estimate1 `json:"score"`
	ScoreWithFaulted estimate1 `json:"scoreWithFaulted"`
	EvaluatorScore   *float64  `json:"evaluatorScore"`
	Evaluators       []struct {
		ID     string   `json:"id"`
		Name   string   `json:"name"`
		Weight float64  `json:"weight"`
		Score  *float64 `json:"score"`
		Errors int      `json:"errors"`
		NotRun int      `json:"notRun"`
		estimate1
	} `json:"evaluators"`
	PassK  []stats.PassK          `json:"passK"`
	Agents map[string]statistics1 `json:"agents"`
}

type estimate1 struct {
	N             int      `json:"n"`
	Mean          *float64 `json:"mean"`
	StandardError *float64 `json:"standardError"`
	Passed        int      `json:"passed"`
	PassRate      *float64 `json:"passRate"`
	PassRateLow   *float64 `json:"passRateLow"`
	PassRateHigh  *float64 `json:"passRateHigh"`
}

func (e estimate1) score() stats.Estimate {
	return stats.Estimate{N: e.N, Clusters: e.N, Mean: e.Mean, StandardError: e.StandardError}
}

func (e estimate1) passRate() stats.Estimate {
	out := stats.Estimate{N: e.N, Clusters: e.N, Mean: e.PassRate, Low: e.PassRateLow, High: e.PassRateHigh}
	if e.PassRateLow != nil {
		out.Interval, out.Level = "wilson", 0.95
	}
	return out
}

// fromVersion1 puts the statistics of a document of version 1 in the places that they have now.
// What was averaged over agents is left out.
func fromVersion1(data json.RawMessage) (*summary.Summary, error) {
	var s statistics1
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	out := &summary.Summary{Epochs: max(len(s.PassK), 1), Thresholds: eval.Thresholds{Pass: 1}, Gates: []summary.Gate{}}
	if len(s.Agents) == 0 {
		out.AgentSummary = s.agent("")
		return out, nil
	}
	out.Rollouts, out.Coverage = s.Rollouts, s.coverage()
	out.Evaluators, out.PassK = []summary.EvaluatorSummary{}, []stats.PassK{}
	for _, name := range slices.Sorted(maps.Keys(s.Agents)) {
		one := s.Agents[name].agent(name)
		out.Agents = append(out.Agents, one)
		out.Coverage.EvaluatorErrors += one.Coverage.EvaluatorErrors
		out.Coverage.EvaluatorsNotRun += one.Coverage.EvaluatorsNotRun
	}
	return out, nil
}

func (s statistics1) coverage() summary.Coverage {
	return summary.Coverage{Evaluations: s.Evaluations.Total, Scored: s.Evaluations.Scored,
		Incomplete: s.Evaluations.Incomplete}
}

func (s statistics1) agent(name string) summary.AgentSummary {
	out := summary.AgentSummary{
		Agent: name, Rollouts: s.Rollouts, Coverage: s.coverage(),
		Score: s.ScoreWithFaulted.score(), ScoreCompleted: s.Score.score(),
		PassRate: s.Score.passRate(), EvaluationsPassed: s.Score.Passed, EvaluatorScore: s.EvaluatorScore,
		Evaluators: []summary.EvaluatorSummary{}, PassK: s.PassK,
	}
	for _, e := range s.Evaluators {
		out.Evaluators = append(out.Evaluators, summary.EvaluatorSummary{
			ID: e.ID, Name: e.Name, Weight: e.Weight, Estimate: e.score(), PassRate: e.passRate(),
			EvaluationsPassed: e.Passed, Score: e.Score, Errors: e.Errors, NotRun: e.NotRun,
		})
		out.Coverage.EvaluatorErrors += e.Errors
		out.Coverage.EvaluatorsNotRun += e.NotRun
	}
	return out
}

// summary1 moves the score of a document of version 1, which left faulted rollouts out, to where it
// is now.
func summary1(s schemas.Summary, statistics *summary.Summary) schemas.Summary {
	s.Score, s.ScoreCompleted, s.ScoreOf = nil, s.Score, schemas.ScoreWithFaulted
	if statistics == nil {
		return s
	}
	s.Score = statistics.Score.Mean
	for _, a := range statistics.Agents {
		s.ScoreCompleted = nil
		s.Agents = append(s.Agents, schemas.AgentScore{Agent: a.Agent,
			Score: a.Score.Mean, ScoreCompleted: a.ScoreCompleted.Mean})
	}
	return s
}
