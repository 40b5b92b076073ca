package stats

import (
	"math"
	"strconv"
)

// Variance says how much of the differences between rollouts lies between the evaluations, and how
// much between the epochs of one: what further epochs can tell, and what only further evaluations
// can. It is a one-way random effects model, by ANOVA.
type Variance struct {
	Between float64 `json:"between"`
	Within  float64 `json:"within"`
	// ICC is the share of Between; nil if nothing differs.
	ICC *float64 `json:"icc"`
	// SEByEpochs is the standard error of the mean by the number of epochs, SEFloor that with
	// infinitely many.
	SEByEpochs map[string]float64 `json:"seByEpochs"`
	SEFloor    float64            `json:"seFloor"`
}

// Epochs are the epochs of one evaluation: how many, the mean of their scores, and the sum of the
// squared differences from it.
type Epochs struct {
	N             int
	Mean, Squares float64
}

// EpochsOf sums up the scores of an evaluation's epochs, of which there is at least one.
func EpochsOf(scores []float64) Epochs {
	e := Epochs{N: len(scores)}
	for _, score := range scores {
		e.Mean += score / float64(e.N)
	}
	for _, score := range scores {
		e.Squares += (score - e.Mean) * (score - e.Mean)
	}
	return e
}

// Components returns the components of the variance. It returns nil unless there are two
// evaluations, and one with two epochs.
func Components(groups []Epochs) *Variance {
	var total, sum, squares, within float64
	for _, g := range groups {
		n := float64(g.N)
		total, sum, squares, within = total+n, sum+n*g.Mean, squares+n*n, within+g.Squares
	}
	count := float64(len(groups))
	if count < 2 || total <= count {
		return nil
	}
	var between float64
	for _, g := range groups {
		d := g.Mean - sum/total
		between += float64(g.N) * d * d
	}
	within /= total - count
	typical := (total - squares/total) / (count - 1) // how many epochs an evaluation has, if their numbers differ
	v := &Variance{Between: max(0, (between/(count-1)-within)/typical), Within: within, SEByEpochs: map[string]float64{}}
	if all := v.Between + v.Within; all > 0 {
		icc := v.Between / all
		v.ICC = &icc
	}
	for _, k := range []int{1, 2, 4, 8, 16} {
		v.SEByEpochs[strconv.Itoa(k)] = v.standardError(count, float64(k))
	}
	v.SEFloor = v.standardError(count, math.Inf(1))
	return v
}

func (v *Variance) standardError(evaluations, epochs float64) float64 {
	return math.Sqrt(v.Between/evaluations + v.Within/(evaluations*epochs))
}

// Doubling returns the standard error as it is now, with twice as many epochs, and with twice as
// many evaluations.
func (v *Variance) Doubling(evaluations, epochs int) (now, byEpochs, byEvaluations float64) {
	n, k := float64(evaluations), float64(epochs)
	now = v.standardError(n, k)
	return now, v.standardError(n, 2*k), now / math.Sqrt2
}
