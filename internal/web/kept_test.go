package web

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// What is kept of a run is its overview: scores of 0 and scores that are not there are apart.
func TestAnOverviewIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	var o *overview
	if err := runner.OpenReport("../report/testdata/results.json", func(r *runner.Report) (err error) {
		o, err = newOverview(r)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	zero := 0.0
	o.rows[0].Score, o.rows[0].Scores = &zero, map[string]float64{o.evaluators[0].ID: 0}
	o.rows[1].Score, o.rows[1].Scores, o.rows[1].Errors = nil, map[string]float64{}, []string{o.evaluators[0].ID}
	o.rows[0].Reason = "it has secret-value in it"
	o.waits = []waitGroup{{Type: "TASK", Name: "secret-value", N: 3, Oldest: time.UnixMicro(1e15).UTC()}}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Dir(keptPath(dir, o.head.RunID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := keep(dir, o); err != nil {
		t.Fatal(err)
	}
	all := cmp.AllowUnexported(overview{}, row{}, evaluation{}, cause{})
	got, err := readKept(dir, o.head.RunID, redact.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	o.size = got.size // the rows were changed above
	if diff := cmp.Diff(o, got, all); diff != "" {
		t.Error(diff)
	}
	got, err = readKept(dir, o.head.RunID, redact.New(map[string]string{"S": "secret-value"}))
	if err != nil || got.rows[0].Reason == o.rows[0].Reason || got.waits[0].Name == "secret-value" {
		t.Errorf("a secret that is known now is shown: %v", err)
	}
	whole, err := os.ReadFile(keptPath(dir, o.head.RunID))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(whole); i += 7 {
		damaged := append([]byte(nil), whole...)
		damaged[i] ^= 0x55
		for _, data := range [][]byte{whole[:i], damaged} {
			if err := os.WriteFile(keptPath(dir, o.head.RunID), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := readKept(dir, o.head.RunID, redact.New(nil)); err == nil && !cmp.Equal(o, got, all) {
				t.Fatalf("byte %d is damaged, and something else is read", i)
			}
		}
	}
}
