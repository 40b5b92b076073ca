package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// V1: Student's t covered 20 to 90 % at few evaluations. The short form of the tables in
// docs/coverage.md: what is published, within what chance allows.
func TestIntervalsHoldWhatTheyPromise(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	seed, experiments := setting(t, "EVALRUN_COVERAGE_SEED", 1), setting(t, "EVALRUN_COVERAGE_EXPERIMENTS", 200)
	var some []cell
	for _, c := range cells() {
		if experiments >= 2000 || c.column != "100" && c.column != "40 of 1 to 8" { // those take longest
			some = append(some, c)
		}
	}
	// Four standard errors of the shares that are promised.
	chance := func(p float64) float64 { return 4 * math.Sqrt(p*(1-p)/float64(experiments)) }
	worse := 0
	for _, r := range simulate(some, seed, int(experiments)) { //nolint:gosec // a small number
		name := r.group + ", " + r.row + ", " + r.column
		falseGreen := 0.03
		if r.hard {
			falseGreen = 0.05
		}
		if r.shipped.covered < 0.945-chance(0.945) {
			t.Errorf("%s: coverage %.3f", name, r.shipped.covered)
		}
		if r.shipped.falseGreen > falseGreen+chance(falseGreen) {
			t.Errorf("%s: false green %.3f", name, r.shipped.falseGreen)
		}
		if r.student.covered < 0.945-chance(0.945) {
			worse++
		}
	}
	t.Logf("seed %d: %d cells of %d experiments; Student's t is below in %d", seed, len(some), experiments, worse)
	if worse < 10 {
		t.Errorf("the experiments tell nothing: Student's t is below in %d of %d cells", worse, len(some))
	}
}

// The tables have a place for every cell.
func TestTables(t *testing.T) {
	t.Parallel()
	var results []result
	for _, c := range cells() {
		results = append(results, result{cell: c, shipped: share{0.951, 0.012, 0.3}, student: share{0.6, 0.2, 0.1}})
	}
	text := tables(results)
	for what, n := range map[string]int{"### ": 9, "0.951 (0.600)": len(results), "1.2 % (20.0 %)": len(results), "0.30 (0.10)": len(results)} {
		if strings.Count(text, what) != n {
			t.Errorf("%q is there %d times, not %d:\n%s", what, strings.Count(text, what), n, text)
		}
	}
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		t.Fatalf("%s: expected a whole number above 0, got %q", name, text)
	}
	return n
}
