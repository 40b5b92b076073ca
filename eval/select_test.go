package eval

import (
	"fmt"
	"math"
	"slices"
	"strings"
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

// Given more evaluations than may be kept, when a limit or a sample is wanted, then it is the same as
// with all of them kept.
func TestChoiceOfMoreThanFits(t *testing.T) {
	for _, w := range []Wanted{{Limit: 3}, {Sample: 3, Seed: 7}, {Sample: 3, Seed: 8, Pattern: "1"}, {Limit: 2, Tags: []string{"even"}}} {
		set := &Set{Name: "S"}
		many, err := set.Choose(w)
		if err != nil {
			t.Fatal(err)
		}
		few, _ := set.Choose(w)
		few.most = 10_000
		once := w
		once.AtOnce = true
		least, _ := set.Choose(once)
		kept := 0
		for i := range 1000 {
			e := Evaluation{ID: fmt.Sprint("e", i), Tags: []string{[]string{"even", "odd"}[i%2]}}
			if many.Add(e) != nil || few.Add(e) != nil || least.Add(e) != nil {
				t.Fatal("too many")
			}
			if n := len(least.chosen) + len(least.best); n > 3 { // V13
				t.Fatalf("%d are kept at once", n)
			}
			kept = max(kept, len(few.chosen))
		}
		var ids [3][]string
		for i, c := range []*Choice{many, few, least} {
			chosen, err := c.Done()
			if err != nil {
				t.Fatal(err)
			}
			some := Set{Evaluations: chosen}
			if w.Limit > 0 {
				some.Evaluations = chosen[:w.Limit]
			} else {
				some.Sample(w.Sample, w.Seed)
			}
			for _, e := range some.Evaluations {
				ids[i] = append(ids[i], e.ID)
			}
		}
		if !slices.Equal(ids[0], ids[1]) || !slices.Equal(ids[0], ids[2]) || !least.Dropped() || least.Added() != 1000 || !few.Dropped() || many.Dropped() || kept > 20 || few.Added() != 1000 {
			t.Errorf("%+v: %v and %v, kept %d", w, ids, least.chosen, kept)
		}
	}
	c, err := (&Set{}).Choose(Wanted{})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = c.Add(Evaluation{Inputs: make([]byte, 10<<20)})
	}
	if want := "the first 10 evaluations that are chosen need more than 100 MiB, the most that a run may have; choose fewer, with --limit or --sample"; err.Error() != want || len(c.chosen) != 10 {
		t.Errorf("after %d: %v", len(c.chosen), err)
	}
}

// A pattern that matches is not blamed for a tag that nothing has.
func TestChoiceOfATagThatNothingHas(t *testing.T) {
	set := &Set{Name: "S", Evaluations: []Evaluation{{ID: "a1"}, {ID: "b1", Tags: []string{"slow"}}}}
	_, err := choose(set, Wanted{Pattern: "a", Tags: []string{"slow"}})
	if want := `no evaluation of the set "S" has the tag "slow"; none has any tag`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestSelect(t *testing.T) {
	all := []Evaluation{{ID: "3f2504e0-4f89-11d3-9a0c-0305e82c3301", Name: "Add"}, {ID: "sub/1", Name: "Subtract"}, {ID: "Mul", Name: "Multiply [big]"}}
	for _, v := range []struct {
		name, pattern, want, error string
		ids                        []string
	}{
		{name: "nothing asked", want: "3f2504e0-4f89-11d3-9a0c-0305e82c3301 sub/1 Mul"},
		{name: "ids in any case, in the order of the set", ids: []string{"MUL", "3F2504E0-4F89-11D3-9A0C-0305E82C3301"}, want: "3f2504e0-4f89-11d3-9a0c-0305e82c3301 Mul"},
		{name: "substring of a name", pattern: "tract", want: "sub/1"},
		{name: "glob of a name", pattern: "*l*", want: "Mul"},
		{name: "glob of an id", pattern: "sub/?", want: "sub/1"},
		{name: "both", ids: []string{"mul", "sub/1"}, pattern: "Mult", want: "Mul"},
		{name: "unknown id", ids: []string{"mull"}, error: `the set "S" has no evaluation with the id "mull"; did you mean "Mul"?; it has 3f2504e0-4f89-11d3-9a0c-0305e82c3301, sub/1, Mul`},
		{name: "nothing matches", pattern: "zzz", error: `no evaluation of the set "S" matches "zzz"; it has 3f2504e0-4f89-11d3-9a0c-0305e82c3301, sub/1, Mul`},
		{name: "bad pattern", pattern: "[", error: `pattern "[": syntax error in pattern`},
	} {
		t.Run(v.name, func(t *testing.T) {
			chosen, err := choose(&Set{Name: "S", Evaluations: all}, Wanted{IDs: v.ids, Pattern: v.pattern})
			if v.error != "" {
				if err == nil || err.Error() != v.error {
					t.Errorf("got %v, want %s", err, v.error)
				}
				return
			}
			var got []string
			for _, e := range chosen {
				got = append(got, e.ID)
			}
			if err != nil || strings.Join(got, " ") != v.want {
				t.Errorf("got %v, %v, want %s", got, err, v.want)
			}
		})
	}
}

func choose(set *Set, w Wanted) ([]Evaluation, error) {
	c, err := set.Choose(w)
	if err != nil {
		return nil, err
	}
	for _, e := range set.Evaluations {
		if err := c.Add(e); err != nil {
			return nil, err
		}
	}
	return c.Done()
}
