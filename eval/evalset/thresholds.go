package evalset

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/input"
)

func (l *loader) thresholds(f *input.Fields, set *eval.Set) {
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
	set.Thresholds = eval.Thresholds{Score: l.threshold(o, "score"),
		ScoreWithFaulted: l.threshold(o, "scoreWithFaulted"), PassRate: l.threshold(o, "passRate"),
		Pass: o.Float("pass", 1, 0, 1)}
	if e := o.Get("evaluators"); e != nil {
		single := l.Object(e)
		set.Thresholds.Evaluators = map[string]eval.Threshold{}
		for _, m := range e.Members {
			l.evaluatorThreshold(single, m, set, f.Has("tasks"))
		}
	}
	l.notNull(o, input.Number, "pass")
	o.Refuse()
}

// looksLikeThresholds reports whether the author of the key has probably meant a gate. Without it
// the run would have none, and be green.
func looksLikeThresholds(key string) bool {
	return namesThreshold(key) || strings.EqualFold(key, "score") || strings.EqualFold(key, "scores") ||
		input.Suggest(key, []string{"thresholds"}) != ""
}

// namesThreshold is like looksLikeThresholds for evaluators and evaluations, where a key may be one
// of UiPath's that evalrun does not know.
func namesThreshold(key string) bool {
	key = strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key))
	return strings.Contains(key, "thresh") ||
		slices.Contains([]string{"gate", "gates", "failunder", "passrate", "minscore"}, key)
}

// notNull refuses a null if the default would be another gate than the author meant.
func (l *loader) notNull(f *input.Fields, kind input.Kind, names ...string) {
	for _, name := range names {
		if n := f.Get(name); n != nil && n.Kind == input.Null {
			l.Errorf(n, "expected %s, got null", kind)
		}
	}
}

func (l *loader) evaluatorThreshold(o *input.Fields, m input.Member, set *eval.Set, hasTasks bool) {
	if !slices.Contains(set.EvaluatorIDs(), m.Key) && !hasTasks { // a task brings a verifier of its own
		l.Errorf(m.Value, "the set has no evaluator %q; it has %s%s", m.Key, input.List(set.EvaluatorIDs()),
			input.Suggest(m.Key, set.EvaluatorIDs()))
	}
	t := l.threshold(o, m.Key)
	if t == nil {
		return
	}
	if (t.By == eval.ByInterval || t.Agents == eval.AgentsTogether) && classifies(set, m.Key) {
		l.Errorf(m.Value, "the score of the classification %q is no mean, so that it has no interval, and is "+
			"judged for each agent; expected a number from 0 to 1", m.Key)
	}
	set.Thresholds.Evaluators[m.Key] = *t
}

// threshold reads a number, or an object with min; nil if it is not there, or is neither.
func (l *loader) threshold(f *input.Fields, name string) *eval.Threshold {
	n := f.Get(name)
	switch {
	case n == nil:
		return nil
	case n.Kind == input.Number:
		return &eval.Threshold{Min: f.Float(name, 0, 0, 1)}
	case n.Kind != input.Object:
		l.Errorf(n, "expected a number from 0 to 1, or an object such as {min: 0.9, by: interval}, got %s", n.Kind)
		return nil
	}
	o := l.Object(n)
	t := &eval.Threshold{}
	if o.Required("min", input.Number) != nil {
		t.Min = o.Float("min", 0, 0, 1)
	}
	if by := o.Enum("by", eval.ByPoint, eval.ByPoint, eval.ByInterval); by != eval.ByPoint {
		t.By = by
	}
	if agents := o.Enum("agents", eval.AgentsEach, eval.AgentsEach, eval.AgentsTogether); agents != eval.AgentsEach {
		t.Agents = agents
	}
	l.notNull(o, input.String, "by", "agents")
	if t.By == eval.ByInterval && t.Min >= 1 {
		l.Errorf(o.Get("min"), "an interval never reaches 1 with its lower end; expected less than 1, or by: point")
	}
	o.Refuse()
	return t
}

// classifies reports whether the evaluator's score of the set is not a mean.
func classifies(s *eval.Set, id string) bool {
	for _, def := range s.Evaluators {
		if def.ID == id {
			e, err := kinds.All.New(def)
			return err == nil && e.Classification != nil && e.Classification.Score != nil
		}
	}
	return false
}
