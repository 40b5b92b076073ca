package summary

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
)

// Raters says how far the people or models agree that one evaluator has asked.
type Raters struct {
	// Items counts the rollouts that were rated, Ratings their ratings.
	Items   int `json:"items"`
	Ratings int `json:"ratings"`
	// Agreement is the share of pairs of raters of one rollout who agree. Alpha is Krippendorff's (of
	// scores by their differences, else nominal), Kappa Cohen's, of two raters who do not give scores.
	// They are nil if nothing can be said.
	Agreement *float64 `json:"agreement"`
	Alpha     *float64 `json:"alpha"`
	Kappa     *float64 `json:"kappa,omitempty"`
}

// raterTally keeps the ratings of one evaluator, those of each rollout together. Labels are numbers
// in it, by their order of appearance.
type raterTally struct {
	labels  map[string]float64
	nominal bool
	units   [][]float64
}

func (t *raterTally) add(ratings []eval.Rating) {
	unit := make([]float64, len(ratings))
	for i, r := range ratings {
		unit[i] = r.Score
		if r.Label == "" {
			continue
		}
		if t.labels == nil {
			t.labels = map[string]float64{}
		}
		if _, known := t.labels[r.Label]; !known {
			t.labels[r.Label] = float64(len(t.labels))
		}
		unit[i] = t.labels[r.Label]
	}
	t.units = append(t.units, unit)
}

// positions counts the labels of judges that compare two answers.
func (t *raterTally) positions() *PositionCounts {
	out := &PositionCounts{}
	for label, number := range t.labels {
		n := 0
		for _, unit := range t.units {
			for _, x := range unit {
				if x == number {
					n++
				}
			}
		}
		switch label {
		case eval.LabelA:
			out.First = n
		case eval.LabelB:
			out.Second = n
		case eval.LabelTie:
			out.Ties = n
		}
	}
	return out
}

func (t *raterTally) summary() *Raters {
	out := &Raters{Items: len(t.units)}
	var same, all float64
	var first, second []float64
	two := t.nominal
	for _, unit := range t.units {
		out.Ratings += len(unit)
		two = two && len(unit) == 2
		if two {
			first, second = append(first, unit[0]), append(second, unit[1])
		}
		for i := range unit {
			for j := range i {
				all++
				if unit[i] == unit[j] {
					same++
				}
			}
		}
	}
	if all > 0 {
		share := same / all
		out.Agreement = &share
	}
	distance := stats.Interval
	if t.nominal {
		distance = stats.Nominal
	}
	out.Alpha = stats.Alpha(t.units, distance)
	if two {
		out.Kappa = stats.Kappa(first, second)
	}
	return out
}

// PositionCounts counts the choices among two answers. Each pair is shown in both orders, so that a
// judge without a bias chooses the first one as often as the second.
type PositionCounts struct {
	First  int `json:"first"`
	Second int `json:"second"`
	Ties   int `json:"ties"`
}
