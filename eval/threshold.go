package eval

import (
	"encoding/json"
)

// These constants say how a threshold is judged, and of how many agents: see Threshold.
const (
	ByPoint        = "point"
	ByInterval     = "interval"
	AgentsEach     = "each"
	AgentsTogether = "together"
)

// Thresholds are the least figures that a run must reach. A nil threshold is not judged.
type Thresholds struct {
	// Score is the threshold of the set's mean score, with the agent's own faults as 0.
	// ScoreWithFaulted is its old name.
	Score            *Threshold `json:"score,omitempty"`
	ScoreWithFaulted *Threshold `json:"scoreWithFaulted,omitempty"`
	// PassRate is the threshold of the share of epochs that pass, averaged over the evaluations.
	PassRate *Threshold `json:"passRate,omitempty"`
	// Evaluators holds the thresholds of the mean scores of single evaluators, by id.
	Evaluators map[string]Threshold `json:"evaluators,omitempty"`
	// Pass is the score from which on a rollout passes (default 1).
	Pass float64 `json:"pass"`
}

// Threshold is the least that a figure may be. One that only has a minimum is a number in JSON.
type Threshold struct {
	Min float64 `json:"min"`
	// By says what is compared with the minimum: the figure itself (ByPoint, or empty), or its
	// whole 95 % interval (ByInterval).
	By string `json:"by,omitempty"`
	// Agents says whether it holds for each agent (AgentsEach, or empty) or for all together.
	Agents string `json:"agents,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (t Threshold) MarshalJSON() ([]byte, error) {
	if t.By == "" && t.Agents == "" {
		return json.Marshal(t.Min)
	}
	type plain Threshold
	return json.Marshal(plain(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Threshold) UnmarshalJSON(data []byte) error {
	*t = Threshold{}
	if json.Unmarshal(data, &t.Min) == nil {
		return nil
	}
	type plain Threshold
	return json.Unmarshal(data, (*plain)(t))
}
