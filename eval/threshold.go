package eval

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
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

// FailUnder holds the thresholds of a command line: the least mean score of an evaluator by its id,
// and that of the set by the empty id.
type FailUnder map[string]float64

// ParseFailUnder reads minima such as 0.9 and evaluator=0.9.
func ParseFailUnder(values []string) (FailUnder, error) {
	out := FailUnder{}
	for _, text := range values {
		id, number := "", text
		if at := strings.LastIndex(text, "="); at >= 0 {
			id, number = text[:at], text[at+1:]
		}
		least, err := strconv.ParseFloat(number, 64)
		_, twice := out[id]
		switch {
		case err != nil || !(least >= 0 && least <= 1) || id == "" && number != text: // NaN is neither
			return nil, fmt.Errorf("expected a number from 0 to 1, or EVALUATOR=NUMBER, got %q", text)
		case twice && id == "":
			return nil, fmt.Errorf("expected one number for the score, got another one: %q", text)
		case twice:
			return nil, fmt.Errorf("expected one number for the evaluator %q, got another one: %q", id, text)
		}
		out[id] = least
	}
	return out, nil
}

// Check makes sure that the set has the evaluators. A task brings a verifier of its own.
func (u FailUnder) Check(s *Set) error {
	known := s.EvaluatorIDs()
	for _, id := range slices.Sorted(maps.Keys(u)) {
		if id != "" && id != Verifier.ID && !slices.Contains(known, id) {
			return fmt.Errorf("there is no evaluator %q; the set has %s%s", id, input.List(known),
				input.Suggest(id, known))
		}
	}
	return nil
}

// Under replaces the thresholds of the same figures by these minima. Each is compared with the
// figure itself.
func (t *Thresholds) Under(u FailUnder) {
	t.Evaluators = maps.Clone(t.Evaluators)
	for id, least := range u {
		switch {
		case id == "":
			t.Score = &Threshold{Min: least}
		case t.Evaluators == nil:
			t.Evaluators = map[string]Threshold{id: {Min: least}}
		default:
			t.Evaluators[id] = Threshold{Min: least}
		}
	}
}

// TooFew is a threshold by interval that no result can meet, because there are too few evaluations:
// even if all of them pass, the interval reaches below the minimum.
type TooFew struct {
	Key       []string // where the threshold is, below thresholds
	Threshold Threshold
	Needed    int
	Has       int
}

// TooFew lists the thresholds that no result of the set can meet. The set may have further tasks,
// which are not among its evaluations yet. With Student's t nothing can be said where a score may
// be neither 0 nor 1: two that are nearly equal may be enough.
func (s *Set) TooFew(tasks int) (out []TooFew) {
	check := func(t *Threshold, asked func(*Evaluation) bool, tasks int, key ...string) {
		if t == nil || t.By != ByInterval || t.Agents == AgentsTogether { // it depends on how many agents there will be
			return
		}
		if s.Interval == stats.Student && (key[0] != "passRate" || s.Epochs > 1) {
			return
		}
		n := 0
		var passing stats.Sample // all evaluations that are asked, as if they passed
		add := func(cluster string) {
			n++
			passing.Add(cluster, 1)
		}
		for i := range s.Evaluations {
			if e := &s.Evaluations[i]; asked(e) {
				add(ClusterOf(e.ID, e))
			}
		}
		for i := range tasks {
			add(fmt.Sprint("task ", i))
		}
		if n == 0 {
			passing.Add("", 1) // so that Needed can tell how many there would have to be
		}
		if needed := passing.Needed(t.Min, s.Interval); n < needed {
			out = append(out, TooFew{key, *t, needed, n})
		}
	}
	every := func(*Evaluation) bool { return true }
	check(s.Thresholds.Score, every, tasks, "score")
	check(s.Thresholds.ScoreWithFaulted, every, tasks, "scoreWithFaulted")
	check(s.Thresholds.PassRate, every, tasks, "passRate")
	for _, def := range s.Evaluators {
		if t, ok := s.Thresholds.Evaluators[def.ID]; ok {
			check(&t, func(e *Evaluation) bool { return e.Asks(def) }, 0, "evaluators", def.ID)
		}
	}
	return out
}
