package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
)

// cell is one kind of experiment.
type cell struct {
	// group is the table of the cell, row its row there, and column its column.
	group, row, column string
	// truth is the mean that is estimated.
	truth float64
	// draw makes an experiment, whose interval is computed by a method.
	draw func(r *rand.Rand) experiment
	// hard marks clusters of unequal size and pairs of verdicts, which promise less of gates.
	hard bool
}

// experiment is a sample, or pairs.
type experiment interface {
	interval(method stats.Method) (low, high *float64)
}

type sample struct{ stats.Sample }

func (s *sample) interval(method stats.Method) (low, high *float64) {
	e := s.Estimate(method)
	return e.Low, e.High
}

type pairs struct{ stats.Paired }

func (p *pairs) interval(method stats.Method) (low, high *float64) { return p.Interval(method) }

var means = []float64{0.05, 0.2, 0.5, 0.8, 0.95}

// cells returns everything that is simulated.
func cells() (out []cell) {
	for _, kind := range []struct {
		name string
		draw func(r *rand.Rand, mean float64) float64
		top  float64 // the maximum of the scores: their mean is that of the table times top
	}{
		{"0 or 1", verdict, 1},
		{"about 0.9, or 0", func(r *rand.Rand, mean float64) float64 {
			return verdict(r, mean) * (0.88 + 0.01*float64(r.IntN(5)))
		}, 0.9},
		{"from 0 to 1 (beta)", func(r *rand.Rand, mean float64) float64 { return beta(r, mean, 1.0/6) }, 1},
		{"4 epochs of 0 or 1", func(r *rand.Rand, mean float64) float64 { return epochs(r, beta(r, mean, 0.3)) }, 1},
	} {
		for _, mean := range means {
			for _, n := range []int{3, 5, 10, 30, 100} {
				out = append(out, cell{group: "Scores", row: fmt.Sprintf("%s, mean %.3g", kind.name, mean*kind.top),
					column: fmt.Sprint(n), truth: mean * kind.top,
					draw: func(r *rand.Rand) experiment {
						s := &sample{}
						for i := range n {
							s.Add(fmt.Sprint(i), kind.draw(r, mean))
						}
						return s
					}})
			}
		}
	}
	return append(append(out, clusteredCells()...), pairedCells()...)
}

// clusteredCells have evaluations that are alike within a cluster (intra-cluster correlation 0.4).
func clusteredCells() (out []cell) {
	for _, clusters := range []struct {
		n     int
		sizes []int
	}{{5, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {10, []int{1, 2, 5, 10}},
		{10, []int{3}}, {20, []int{1, 2, 3, 8}}, {40, []int{1, 2, 3, 8}}} {
		for _, kind := range []struct {
			name string
			draw func(r *rand.Rand, mean float64) float64
			top  float64
		}{
			{"0 or 1", verdict, 1},
			{"0.9 or 0", func(r *rand.Rand, mean float64) float64 { return 0.9 * verdict(r, mean) }, 0.9},
			{"4 epochs of 0 or 1", epochs, 1},
		} {
			for _, mean := range []float64{0.5, 0.9} {
				sizes := fmt.Sprint(clusters.sizes[0])
				if len(clusters.sizes) > 1 {
					sizes += fmt.Sprint(" to ", clusters.sizes[len(clusters.sizes)-1])
				}
				out = append(out, cell{group: "Clusters", row: fmt.Sprintf("%s, mean %.3g", kind.name, mean*kind.top),
					column: fmt.Sprintf("%d of %s", clusters.n, sizes),
					truth:  mean * kind.top, hard: len(clusters.sizes) > 1,
					draw: func(r *rand.Rand) experiment {
						s := &sample{}
						for c := range clusters.n {
							own := beta(r, mean, 0.4)
							for range clusters.sizes[r.IntN(len(clusters.sizes))] {
								s.Add(fmt.Sprint(c), kind.draw(r, own))
							}
						}
						return s
					}})
			}
		}
	}
	return out
}

// pairedCells have differences of graded scores, and of verdicts.
func pairedCells() (out []cell) {
	for _, kind := range []struct {
		name  string
		truth float64
		draw  func(r *rand.Rand) (a, b float64)
	}{
		{"scores, noise of 0.1", 0, func(r *rand.Rand) (a, b float64) {
			x := 0.1 * r.NormFloat64()
			return 0.5 - x/2, 0.5 + x/2
		}},
		{"scores, 5 % lose 0.9", -0.045, func(r *rand.Rand) (a, b float64) { return 0.9, 0.9 * (1 - verdict(r, 0.05)) }},
		{"scores, 5 % lose 0.9, noise of 0.05", -0.045, func(r *rand.Rand) (a, b float64) {
			if r.Float64() < 0.05 {
				return 0.95, 0.05
			}
			x := 0.05 * r.NormFloat64()
			return 0.5 - x/2, 0.5 + x/2
		}},
		{"means of 4 epochs, 0.8 in both", 0, func(r *rand.Rand) (a, b float64) {
			p := beta(r, 0.8, 0.3)
			return epochs(r, p), epochs(r, p)
		}},
		{"verdicts, 10 % better, 10 % worse", 0, func(r *rand.Rand) (a, b float64) {
			switch x := r.Float64(); {
			case x < 0.1:
				return 0, 1
			case x < 0.2:
				return 1, 0
			}
			return 1, 1
		}},
		{"verdicts, 10 % worse", -0.1, func(r *rand.Rand) (a, b float64) { return 1, 1 - verdict(r, 0.1) }},
	} {
		for _, n := range []int{5, 10, 30, 100} {
			out = append(out, cell{group: "Differences", row: kind.name, column: fmt.Sprint(n), truth: kind.truth,
				hard: strings.HasPrefix(kind.name, "verdicts"), draw: func(r *rand.Rand) experiment {
					p := &pairs{}
					for i := range n {
						a, b := kind.draw(r)
						p.Add(fmt.Sprint(i), a, b)
					}
					return p
				}})
		}
	}
	return out
}

func verdict(r *rand.Rand, p float64) float64 {
	if r.Float64() < p {
		return 1
	}
	return 0
}

// epochs is the mean of four verdicts.
func epochs(r *rand.Rand, p float64) float64 {
	return (verdict(r, p) + verdict(r, p) + verdict(r, p) + verdict(r, p)) / 4
}

// beta draws a rate whose verdicts are correlated by icc.
func beta(r *rand.Rand, mean, icc float64) float64 {
	size := 1/icc - 1
	a, b := gamma(r, mean*size), gamma(r, (1-mean)*size)
	return a / (a + b)
}

// gamma draws by Marsaglia and Tsang (2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	for {
		x := r.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v = v * v * v; v > 0 && math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
