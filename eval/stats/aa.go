package stats

import "slices"

// SelfTest says how often the tests of a comparison find a difference between two halves of the
// epochs of one run, where there is none.
type SelfTest struct {
	Splits int `json:"splits"`
	// Exact says that these are all the splits.
	Exact    bool        `json:"exact"`
	T        FalseAlarms `json:"t"`
	SignFlip FalseAlarms `json:"signFlip"`
}

// FalseAlarms counts the splits in which a test has p <= 0.05.
type FalseAlarms struct {
	Rejected int     `json:"rejected"`
	Rate     float64 `json:"rate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	// Calibrated says that the interval of the rate allows 0.05.
	Calibrated bool `json:"calibrated"`
}

// Repeated are the scores of one evaluation's epochs.
type Repeated struct {
	Cluster string
	Scores  []float64
}

// The self-test goes through all splits of at most exactSplits evaluations with two epochs each, and
// else draws some. aaDraws is how many signs each of those draws where there are too many for all.
const (
	exactSplits = 12
	drawnSplits = 1000
	aaDraws     = 1000
)

// AA splits the epochs of each evaluation into halves at random, and compares the halves. It leaves
// out an evaluation with one epoch, and one epoch of an odd number, another one each time. It
// returns nil if fewer than two clusters are left.
func AA(evaluations []Repeated, reduce func([]float64) float64, seed uint64) *SelfTest {
	evaluations = slices.DeleteFunc(slices.Clone(evaluations), func(e Repeated) bool { return len(e.Scores) < 2 })
	clusters := map[string]bool{}
	pairs := true
	for _, e := range evaluations {
		clusters[e.Cluster] = true
		pairs = pairs && len(e.Scores) == 2
	}
	if len(clusters) < 2 {
		return nil
	}
	out := &SelfTest{Splits: drawnSplits}
	if pairs && len(evaluations) <= exactSplits {
		out.Exact, out.Splits = true, 1<<len(evaluations)
	}
	draws := uint64(0)
	draw := func() uint64 {
		draws++
		return random(seed).at(draws - 1)
	}
	for split := range out.Splits {
		var d Sample
		for i, e := range evaluations {
			scores := slices.Clone(e.Scores)
			if out.Exact {
				if split>>i&1 == 1 {
					slices.Reverse(scores)
				}
			} else {
				for left := len(scores); left > 1; left-- {
					j := below(draw(), left)
					scores[j], scores[left-1] = scores[left-1], scores[j]
				}
			}
			middle := len(scores) / 2
			d.Add(e.Cluster, reduce(scores[middle:2*middle])-reduce(scores[:middle]))
		}
		delta, se, clusters := d.mean()
		if p := tTest(delta, *se, clusters); p != nil && *p <= 0.05 {
			out.T.Rejected++
		}
		sums, _ := d.sums(0)
		if signFlip(sums, random(seed), aaDraws) <= 0.05 {
			out.SignFlip.Rejected++
		}
	}
	out.T.judge(out.Splits)
	out.SignFlip.judge(out.Splits)
	return out
}

func (f *FalseAlarms) judge(splits int) {
	n := float64(splits)
	f.Rate = float64(f.Rejected) / n
	f.Low, f.High = wilson(f.Rate, n, z)
	f.Calibrated = f.Low <= 0.05
}
