package eval

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Variance says how much of what differs between rollouts lies between the evaluations, and how
// much between the epochs of one: what further epochs can tell, and what only further evaluations
// can. It is a one-way random effects model, by ANOVA.
type Variance struct {
	Between float64 `json:"between"`
	Within  float64 `json:"within"`
	// ICC is the share of Between; nil if nothing differs.
	ICC *float64 `json:"icc"`
	// SEByEpochs is the standard error of the mean with so many epochs, SEFloor that with
	// infinitely many.
	SEByEpochs map[string]float64 `json:"seByEpochs"`
	SEFloor    float64            `json:"seFloor"`
}

// Flaky is an evaluation of which some epochs pass and some do not.
type Flaky struct {
	EvaluationID string `json:"evaluationId"`
	Passes       int    `json:"passes"`
	N            int    `json:"n"`
}

// epochGroup sums up the scores of one evaluation's epochs.
type epochGroup struct {
	id           string
	n, passes    int
	mean, square float64 // square is the sum of the squared differences from the mean
}

func groupOf(id string, scores []float64, pass float64) epochGroup {
	g := epochGroup{id: id, n: len(scores), mean: mean(scores)}
	for _, score := range scores {
		g.square += (score - g.mean) * (score - g.mean)
		if passes(score, pass) {
			g.passes++
		}
	}
	return g
}

// variance needs two evaluations, and one with two epochs; else it is nil.
func variance(groups []epochGroup) *Variance {
	var total, sum, squares, within float64
	for _, g := range groups {
		n := float64(g.n)
		total, sum, squares, within = total+n, sum+n*g.mean, squares+n*n, within+g.square
	}
	count := float64(len(groups))
	if count < 2 || total <= count {
		return nil
	}
	var between float64
	for _, g := range groups {
		d := g.mean - sum/total
		between += float64(g.n) * d * d
	}
	within /= total - count
	typical := (total - squares/total) / (count - 1) // how many epochs an evaluation has, where they are not all as many
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

// Doubling is what becomes of the standard error, which is now, with twice as many epochs and with
// twice as many evaluations.
func (v *Variance) Doubling(evaluations, epochs int) (now, byEpochs, byEvaluations float64) {
	n, k := float64(evaluations), float64(epochs)
	now = v.standardError(n, k)
	return now, v.standardError(n, 2*k), now / math.Sqrt2
}

// consistency says which evaluations pass in some, in all and in no epochs. The first are sorted by
// how little certain they are.
func consistency(groups []epochGroup) (flaky []Flaky, always, never []string) {
	for _, g := range groups {
		switch g.passes {
		case 0:
			never = append(never, g.id)
		case g.n:
			always = append(always, g.id)
		default:
			flaky = append(flaky, Flaky{g.id, g.passes, g.n})
		}
	}
	spread := func(f Flaky) float64 { return float64(f.Passes*(f.N-f.Passes)) / float64(f.N*f.N) }
	slices.SortStableFunc(flaky, func(a, b Flaky) int { return cmp.Compare(spread(b), spread(a)) })
	return flaky, always, never
}
