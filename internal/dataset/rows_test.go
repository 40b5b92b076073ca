package dataset

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

func parsed(t testing.TB, dir, dataset string) (*eval.Set, *Dataset) {
	t.Helper()
	set, _, err := evalset.Parse(filepath.Join(dir, "set.yaml"), []byte("{version: \"1.0\", id: s, name: S, defaultCriterias: {}, dataset: "+dataset+"}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var r input.Reader
	d := Parse(&r, set)
	if r.Problems.Err(false) != nil {
		t.Fatal(r.Problems)
	}
	return set, d
}

// Every key of a data set reaches the evaluation.
func TestEvaluationsOfRows(t *testing.T) {
	dir := t.TempDir()
	row := `{"id": 7, "name": "Seven", "in": {"a": 1.50}, "out": {"b": null}, "behavior": "waits", "tags": ["x", "", "x", 2], "cluster": 3, "about": {"k": []}}`
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(row+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, d := parsed(t, dir, `{file: rows.jsonl, id: "{row.id}", name: "{row.name}!", inputs: "{row.in}", expectedOutput: "{row.out}", expectedAgentBehavior: "{row.behavior}",`+
		`criteria: {c: {want: "{row.in.a}"}, d: null}, tags: "{row.tags}", cluster: "c{row.cluster}", metadata: {about: "{row.about}", n: 1}}`)
	set.DefaultCriteria = map[string]json.RawMessage{"c": json.RawMessage(`{}`), "e": json.RawMessage(`{"default":true}`)}
	var got []eval.Evaluation
	var r input.Reader
	if err := d.Each(&r, func(e eval.Evaluation) error { got = append(got, e); return nil }); err != nil || r.Problems != nil {
		t.Fatal(err, r.Problems)
	}
	want := []eval.Evaluation{{ID: "7", Name: "Seven!", Inputs: json.RawMessage(`{"a":1.50}`), ExpectedOutput: json.RawMessage(`{"b":null}`), ExpectedAgentBehavior: "waits",
		Criteria: map[string]json.RawMessage{"c": json.RawMessage(`{"want":1.50}`), "d": json.RawMessage("null"), "e": json.RawMessage(`{"default":true}`)},
		Tags:     []string{"x", "2"}, Cluster: "c3", Metadata: json.RawMessage(`{"about":{"k":[]},"n":1}`)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A data set of a gigabyte needs no more memory than its row, and some bytes for each id.
func TestAGigabyteIsReadRowByRow(t *testing.T) {
	const rows = 1 << 20
	testenv.NeedLong(t)
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "large.csv"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(file, 1<<20)
	text := strings.Repeat("All work and no play. ", 45)
	_, _ = fmt.Fprintln(w, "id,text,want") // Flush has the error
	for i := range rows {
		_, _ = fmt.Fprintf(w, "%d,\"%s\",x\n", i, text) // Flush has the error
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	set, d := parsed(t, dir, `{file: large.csv, id: "{row.id}", inputs: {text: "{row.text}"}, criteria: {c: {want: "{row.want}"}}}`)
	chosen, err := set.Choose(eval.Wanted{Sample: 100, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	memory := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc >> 20)
	}
	before, most, n := memory(), 0, 0 // what an earlier test leaves is freed meanwhile: it may be less than before
	var r input.Reader
	if err := d.Each(&r, func(e eval.Evaluation) error {
		if n++; n%(rows/16) == 0 {
			most = max(most, memory()-before)
		}
		return chosen.Add(e)
	}); err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	if set.Dataset.Rows != rows || chosen.Added() != rows {
		t.Errorf("%d rows, %d added", set.Dataset.Rows, chosen.Added())
	}
	t.Logf("%d MiB", most)
	if most > 250 { // 100 MiB of evaluations before the sample is taken of them, with what holds them, and the ids
		t.Errorf("%d MiB of memory for a file of 1 GiB", most)
	}
}
