package scipy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/evalrun/evalrun/eval/stats"
)

// testCase is what both programs compute.
type testCase struct {
	A         []float64   `json:"a"`
	B         []float64   `json:"b"`
	Clusters  []string    `json:"clusters"`
	Resamples int         `json:"resamples"`
	Seed      uint64      `json:"seed"`
	Epochs    [][]float64 `json:"epochs"`
	Attempts  [][2]int    `json:"attempts"`
	K         int         `json:"k"`
	N         int         `json:"n"`
	Least     float64     `json:"least"`
	P         float64     `json:"p"`
	PValues   []float64   `json:"pValues"`
}

// TestScipyAndStatsmodelsComputeTheSame compares every figure that the other program gives.
func TestScipyAndStatsmodelsComputeTheSame(t *testing.T) {
	interpreter := python(t)
	seed, n := setting(t, "EVALRUN_SCIPY_SEED", 1), setting(t, "EVALRUN_SCIPY_CASES", 100)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // cases, no secrets
	cases := make([]testCase, n)
	for i := range cases {
		cases[i] = newCase(r)
	}
	text, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, "reference.py") //nolint:gosec // our own script
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore", "OPENBLAS_NUM_THREADS=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference.py: %v", err)
	}
	var reference []map[string]*float64
	if err := json.Unmarshal(out, &reference); err != nil {
		t.Fatal(err)
	}
	compared := map[string]int{}
	for i, want := range reference {
		got := figures(cases[i])
		for _, name := range slices.Sorted(maps.Keys(want)) {
			compared[name]++
			if !same(got[name], want[name]) {
				text, _ := json.Marshal(cases[i]) // it was marshalled before
				t.Errorf("case %d: %s: got %v, want %v: %s", i, name, show(got[name]), show(want[name]), text)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(figures(cases[0]))) {
		if compared[name] == 0 {
			t.Errorf("%s was never compared", name)
		}
	}
	t.Logf("seed %d: %d cases, compared %v", seed, n, compared)
}

// same allows for six digits. A figure that is not there must be missing on both sides.
func same(got, want *float64) bool {
	if got == nil || want == nil {
		return got == want
	}
	return math.Abs(*got-*want) <= 2e-6*max(1, math.Abs(*want)) // ends of intervals are rounded to six digits
}

func show(x *float64) string {
	if x == nil {
		return "none"
	}
	return fmt.Sprint(*x)
}

// newCase has scores that are 0 or 1, or quarters, or anything, in clusters or not, one time in eight
// the same on both sides; all other parts are independent of them.
func newCase(r *rand.Rand) testCase {
	c := testCase{Resamples: 200, Seed: r.Uint64N(1 << 40), K: 1 + r.IntN(4), N: 1 + r.IntN(60), Least: float64(1+r.IntN(19)) / 20, P: r.Float64()}
	kind, clustered, groups, equal := r.IntN(3), r.IntN(2) == 0, 1+r.IntN(12), r.IntN(8) == 0
	one := func() float64 {
		switch x := r.Float64(); kind {
		case 0:
			return math.Round(x)
		case 1:
			return math.Round(4*x) / 4
		default:
			return x
		}
	}
	for i := range 2 + r.IntN(30) {
		cluster := fmt.Sprint("e", i)
		if clustered {
			cluster = fmt.Sprint("c", r.IntN(groups))
		}
		a, b := one(), one()
		if equal {
			b = a
		}
		c.A, c.B, c.Clusters = append(c.A, a), append(c.B, b), append(c.Clusters, cluster)
	}
	epochs := 2 + r.IntN(4)
	for range 2 + r.IntN(8) {
		var scores []float64
		for range epochs {
			scores = append(scores, r.Float64())
		}
		c.Epochs = append(c.Epochs, scores)
		n := c.K + r.IntN(6)
		c.Attempts = append(c.Attempts, [2]int{n, r.IntN(n + 1)})
	}
	for range 1 + r.IntN(5) {
		c.PValues = append(c.PValues, math.Round(r.Float64()*100)/100)
	}
	return c
}

// figures are what package stats makes of a case.
func figures(c testCase) map[string]*float64 {
	out := map[string]*float64{}
	set := func(name string, x float64) { out[name] = &x }
	var sample stats.Sample
	var pairs stats.Paired
	for i, a := range c.A {
		sample.Add(c.Clusters[i], a)
		pairs.Add(c.Clusters[i], a, c.B[i])
	}
	e := sample.Estimate(stats.Bounded)
	out["mean"], out["standardError"], out["low"], out["high"] = e.Mean, e.StandardError, e.Low, e.High
	if e := sample.Estimate(stats.Student); e.Interval == string(stats.Student) {
		out["lowByT"], out["highByT"] = e.Low, e.High
	}
	d := pairs.Difference(stats.Settings{Power: 0.8, Resamples: c.Resamples, Seed: c.Seed})
	set("delta", d.Delta)
	set("signFlipP", d.SignFlipP)
	out["deltaError"], out["tP"], out["mde"], out["correlation"] = d.StandardError, d.TP, d.MDE, d.Correlation
	out["deltaLow"], out["deltaHigh"], out["mcnemarExact"], out["mcnemarMidP"] = d.Low, d.High, d.McNemarExact, d.McNemarMidP
	if d.Bootstrap != nil {
		set("bootstrapLow", d.Bootstrap.Low)
		set("bootstrapHigh", d.Bootstrap.High)
	}
	var epochs []stats.Epochs
	for _, scores := range c.Epochs {
		epochs = append(epochs, stats.EpochsOf(scores))
	}
	v := stats.Components(epochs)
	set("within", v.Within)
	if v.Between > 0 {
		set("f", 1+float64(len(c.Epochs[0]))*v.Between/v.Within)
	}
	var attempts stats.Attempts
	for i, one := range c.Attempts {
		attempts = append(attempts, stats.Attempted{N: one[0], Passed: one[1], Cluster: fmt.Sprint(i)})
	}
	p := attempts.Curve(c.K)[c.K-1]
	out["passAtK"], out["passHatK"], out["passAtKError"], out["passHatKError"] = p.PassAtK, p.PassHatK, p.PassAtKStandardError, p.PassHatKStandardError
	set("pointFails", stats.PointFails(c.N, c.Least, c.P))
	set("intervalFails", stats.IntervalFails(c.N, c.Least, c.P))
	for i, adjusted := range stats.Holm(c.PValues) {
		set(fmt.Sprint("holm", i), adjusted)
	}
	return out
}

// python is the interpreter that has scipy. Without one the test ends here.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("EVALRUN_SCIPY_PYTHON")
	if path == "" {
		path = filepath.Join(".venv", "bin", "python")
	}
	if _, err := exec.LookPath(path); err == nil {
		return path
	}
	message := "scipy is not installed: python3 -m venv internal/test/scipy/.venv && internal/test/scipy/.venv/bin/pip install -r internal/test/scipy/requirements.lock"
	if os.Getenv("EVALRUN_SCIPY") == "required" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// setting is a number from the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
