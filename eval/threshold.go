package eval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
)

// How a threshold is judged, and of how many agents: see Threshold.
const (
	ByPoint        = "point"
	ByInterval     = "interval"
	AgentsEach     = "each"
	AgentsTogether = "together"
)

// Thresholds are what a run must reach. A nil threshold is not judged.
type Thresholds struct {
	// Score is that of the mean score of the set, with the agent's own faults as 0.
	// ScoreWithFaulted is its old name.
	Score            *Threshold `json:"score,omitempty"`
	ScoreWithFaulted *Threshold `json:"scoreWithFaulted,omitempty"`
	// PassRate is that of the share of epochs that pass, averaged over the evaluations.
	PassRate *Threshold `json:"passRate,omitempty"`
	// Evaluators holds those of the mean scores of single evaluators, by id.
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

func (t Threshold) byInterval() bool { return t.By == ByInterval }

func (t Threshold) together() bool { return t.Agents == AgentsTogether }

func (l *loader) thresholds(f *input.Fields, set *Set) {
	set.Thresholds.Pass = 1
	n := f.Get("thresholds")
	f.RefuseLike("thresholds", looksLikeThresholds)
	if n == nil {
		return
	}
	if n.Kind != input.Object {
		l.Errorf(n, "expected an object with score, passRate or evaluators, such as {score: 0.9}, got %s", n.Kind)
		return
	}
	o := l.Object(n)
	set.Thresholds = Thresholds{Score: l.threshold(o, "score"), ScoreWithFaulted: l.threshold(o, "scoreWithFaulted"), PassRate: l.threshold(o, "passRate"),
		Pass: o.Float("pass", 1, 0, 1)}
	if e := o.Get("evaluators"); e != nil {
		single := l.Object(e)
		set.Thresholds.Evaluators = map[string]Threshold{}
		for _, m := range e.Members {
			l.evaluatorThreshold(single, m, set, f.Has("tasks"))
		}
	}
	l.notNull(o, input.Number, "pass")
	o.Refuse()
}

// looksLikeThresholds reports whether somebody who has written the key has meant a gate. Without it the
// run would have none, and be green.
func looksLikeThresholds(key string) bool {
	return namesThreshold(key) || strings.EqualFold(key, "score") || strings.EqualFold(key, "scores") || input.Suggest(key, []string{"thresholds"}) != ""
}

// namesThreshold is looksLikeThresholds for evaluators and evaluations, where a key may be one of
// UiPath's that evalrun does not know.
func namesThreshold(key string) bool {
	key = strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
	return strings.Contains(key, "thresh") || slices.Contains([]string{"gate", "gates", "failunder", "passrate", "minscore"}, key)
}

// notNull refuses a null where the default would be another gate than the one that was meant.
func (l *loader) notNull(f *input.Fields, kind input.Kind, names ...string) {
	for _, name := range names {
		if n := f.Get(name); n != nil && n.Kind == input.Null {
			l.Errorf(n, "expected %s, got null", kind)
		}
	}
}

func (l *loader) evaluatorThreshold(o *input.Fields, m input.Member, set *Set, hasTasks bool) {
	if !hasDefinition(set, m.Key) && !hasTasks { // a task brings a verifier of its own
		l.Errorf(m.Value, "the set has no evaluator %q; it has %s%s", m.Key, list(ids(set.Evaluators)), input.Suggest(m.Key, ids(set.Evaluators)))
	}
	t := l.threshold(o, m.Key)
	if t == nil {
		return
	}
	if (t.byInterval() || t.together()) && set.classifies(m.Key) {
		l.Errorf(m.Value, "the score of the classification %q is no mean, so that it has no interval, and is judged for each agent; expected a number from 0 to 1", m.Key)
	}
	set.Thresholds.Evaluators[m.Key] = *t
}

// threshold reads a number, or an object with min; nil if it is not there, or is neither.
func (l *loader) threshold(f *input.Fields, name string) *Threshold {
	n := f.Get(name)
	switch {
	case n == nil:
		return nil
	case n.Kind == input.Number:
		return &Threshold{Min: f.Float(name, 0, 0, 1)}
	case n.Kind != input.Object:
		l.Errorf(n, "expected a number from 0 to 1, or an object such as {min: 0.9, by: interval}, got %s", n.Kind)
		return nil
	}
	o := l.Object(n)
	t := &Threshold{}
	if o.Required("min", input.Number) != nil {
		t.Min = o.Float("min", 0, 0, 1)
	}
	if by := o.Enum("by", ByPoint, ByPoint, ByInterval); by != ByPoint {
		t.By = by
	}
	if agents := o.Enum("agents", AgentsEach, AgentsEach, AgentsTogether); agents != AgentsEach {
		t.Agents = agents
	}
	l.notNull(o, input.String, "by", "agents")
	if t.byInterval() && t.Min >= 1 {
		l.Errorf(o.Get("min"), "an interval never reaches 1 with its lower end; expected less than 1, or by: point")
	}
	o.Refuse()
	return t
}

// classifies reports whether the evaluator's score of the set is not a mean.
func (s *Set) classifies(id string) bool {
	for _, def := range s.Evaluators {
		if def.ID == id {
			e, err := build(def)
			return err == nil && e.dataset != nil && e.dataset.score != nil
		}
	}
	return false
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
// which are not among its evaluations yet. Of Student's t nothing can be said where a score may be
// neither 0 nor 1: two that are nearly equal may be enough.
func (s *Set) TooFew(tasks int) (out []TooFew) {
	check := func(t *Threshold, asked func(*Evaluation) bool, tasks int, key ...string) {
		if t == nil || !t.byInterval() || t.together() { // it depends on how many agents there will be
			return
		}
		if s.Interval == stats.Student && (key[0] != "passRate" || s.Epochs > 1) {
			return
		}
		n := 0
		var passing stats.Sample // all that is asked, and passes
		add := func(cluster string) {
			n++
			passing.Add(cluster, 1)
		}
		for i := range s.Evaluations {
			if e := &s.Evaluations[i]; asked(e) {
				add(clusterOf(e.ID, e))
			}
		}
		for i := range tasks {
			add(fmt.Sprint("task ", i))
		}
		if n == 0 {
			passing.Add("", 1) // to know how many there would have to be
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
			check(&t, func(e *Evaluation) bool { return e.asks(def) }, 0, "evaluators", def.ID)
		}
	}
	return out
}
