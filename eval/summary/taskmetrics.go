package summary

import (
	"encoding/json"
	"math"

	"github.com/evalrun/evalrun/eval"
)

// These are the kinds of metrics that a registry names for its data sets. The metric of a script is
// not computed.
const (
	MetricMean   = "mean"
	MetricSum    = "sum"
	MetricMin    = "min"
	MetricMax    = "max"
	MetricScript = "uv-script"
)

// TaskMetric sums up the rewards of a registry's data set in one of the ways that the registry
// names, as Harbor does (harbor.metrics): a rollout that has ended without a reward counts as 0.
type TaskMetric struct {
	// Type is mean, sum, min, max or uv-script.
	Type string `json:"type"`
	// Values has one entry under the metric's type. If the tests of the tasks write numbers of several
	// names, it has one under each of these. It is nil if it is not computed.
	Values map[string]float64 `json:"values,omitempty"`
	// Rollouts counts those that have ended, Missing those of them that have no reward. Open counts
	// those that can still change, which are left out.
	Rollouts int `json:"rollouts"`
	Missing  int `json:"missing,omitempty"`
	Open     int `json:"open,omitempty"`
	// NotComputed says why there are no values.
	NotComputed string `json:"notComputed,omitempty"`
}

// metricTally adds up the rewards of the tasks of a data set. It keeps only a few numbers for each
// name that a reward has.
type metricTally struct {
	rollouts, missing, open int
	rewards                 map[string]*rewardTally
}

// rewardTally adds up the numbers of one name.
type rewardTally struct {
	n        int
	sum, off float64
	min, max float64
}

// add adds a number. The sum is Neumaier's, as that of Python since version 3.12.
func (t *rewardTally) add(x float64) {
	if t.n == 0 {
		t.min, t.max = x, x
	}
	t.n++
	t.min, t.max = min(t.min, x), max(t.max, x)
	sum := t.sum + x
	if math.Abs(t.sum) >= math.Abs(x) {
		t.off += (t.sum - sum) + x
	} else {
		t.off += (x - sum) + t.sum
	}
	t.sum = sum
}

// of returns the metric of the numbers, with a zero for each rollout that has none.
func (t *rewardTally) of(kind string, rollouts int) float64 {
	least, most := t.min, t.max
	if t.n < rollouts {
		least, most = min(least, 0), max(most, 0)
	}
	switch kind {
	case MetricMin:
		return least
	case MetricMax:
		return most
	case MetricSum:
		return t.sum + t.off
	}
	return (t.sum + t.off) / float64(rollouts)
}

// add adds a rollout, if its task is one of the data set.
func (t *metricTally) add(r Rollout) {
	if r.Evaluation == nil || r.Evaluation.Task == nil || !r.Evaluation.Task.OfDataset {
		return
	}
	if !r.State.IsTerminal() {
		t.open++
		return
	}
	t.rollouts++
	rewards := r.rewards()
	if rewards == nil {
		t.missing++
	}
	for name, x := range rewards {
		one := t.rewards[name]
		if one == nil {
			if t.rewards == nil {
				t.rewards = map[string]*rewardTally{}
			}
			one = &rewardTally{}
			t.rewards[name] = one
		}
		one.add(x)
	}
}

// rewards returns the numbers that the tests of a completed rollout's task have written, by their
// names in reward.json; nil if there are none.
func (r Rollout) rewards() map[string]float64 {
	if r.State != eval.StateCompleted {
		return nil
	}
	for _, result := range r.Results {
		if result.EvaluatorID != eval.Verifier.ID || result.Score == nil {
			continue
		}
		var details eval.VerifierDetails
		if result.Details != nil && json.Unmarshal(result.Details, &details) != nil {
			details = eval.VerifierDetails{}
		}
		if details.Metrics == nil {
			details.Metrics = map[string]float64{}
		}
		if details.RewardName == "" {
			details.Metrics["reward"] = *result.Score
		}
		return details.Metrics
	}
	return nil
}

// summaries returns the metrics that the data set has; Harbor takes the mean if it has none.
func (t *metricTally) summaries(d *eval.TaskDataset) (out []TaskMetric) {
	if d == nil || t.rollouts+t.open == 0 {
		return nil
	}
	kinds := d.Metrics
	if len(kinds) == 0 {
		kinds = []string{MetricMean}
	}
	for _, kind := range kinds {
		one := TaskMetric{Type: kind, Rollouts: t.rollouts, Missing: t.missing, Open: t.open}
		switch {
		case kind == MetricScript:
			one.NotComputed = "evalrun runs no scripts of a registry"
		case t.rollouts == 0:
			one.NotComputed = "no rollout has ended"
		case len(t.rewards) == 0:
			one.Values = map[string]float64{kind: 0}
		default:
			one.Values = map[string]float64{}
			for name, tally := range t.rewards {
				if len(t.rewards) == 1 {
					name = kind
				}
				one.Values[name] = tally.of(kind, t.rollouts)
			}
		}
		out = append(out, one)
	}
	return out
}
