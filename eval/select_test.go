package eval

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func sampled(ids []string, n int, seed uint64) (out []string) {
	set := &Set{}
	for _, id := range ids {
		set.Evaluations = append(set.Evaluations, Evaluation{ID: id})
	}
	set.Sample(n, seed)
	for _, e := range set.Evaluations {
		out = append(out, e.ID)
	}
	return out
}

func TestSample(t *testing.T) {
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprint("e", i))
	}
	const seeds, n = 4000, 5
	chosen := map[string]int{}
	for seed := range uint64(seeds) {
		got := sampled(ids, n, seed)
		if len(got) != n || !slices.IsSortedFunc(got, func(a, b string) int { return slices.Index(ids, a) - slices.Index(ids, b) }) {
			t.Fatalf("seed %d: %v", seed, got)
		}
		for _, id := range got {
			chosen[id]++
		}
		if seed < 100 {
			// With one more evaluation at most one of the others is displaced by it.
			gone := 0
			more := sampled(append(slices.Clone(ids), "new"), n, seed)
			for _, id := range got {
				if !slices.Contains(more, id) {
					gone++
				}
			}
			if gone > 1 || gone == 1 && !slices.Contains(more, "new") {
				t.Errorf("seed %d: %v became %v", seed, got, more)
			}
		}
	}
	// Each has the same chance: the count is binomial, and no more than 5 standard deviations off.
	p := float64(n) / float64(len(ids))
	for _, id := range ids {
		if off := math.Abs(float64(chosen[id]) - seeds*p); off > 5*math.Sqrt(seeds*p*(1-p)) {
			t.Errorf("%s was chosen %d times of %d", id, chosen[id], seeds)
		}
	}
	if got := sampled(ids, 30, 1); len(got) != len(ids) {
		t.Errorf("of fewer than asked for: %v", got)
	}
}
