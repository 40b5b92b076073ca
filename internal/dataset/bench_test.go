package dataset

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

// V13: a sample of a data set takes little more time than a scan of it, and no more memory: compare
// the two, with what the heap had at the end.
func BenchmarkSample(b *testing.B) {
	rows := testenv.Size(100_000, 5000)
	dir := b.TempDir()
	file, err := os.Create(filepath.Join(dir, "rows.csv"))
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(file)
	text := strings.Repeat("All work and no play. ", 45)
	_, _ = fmt.Fprintln(w, "id,text,want") // Flush has the error
	for i := range rows {
		_, _ = fmt.Fprintf(w, "%d,%s,x\n", i, text) // Flush has the error
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	for name, wanted := range map[string]eval.Wanted{"scan": {}, "sample": {Sample: 5, Seed: 1, AtOnce: true}, "limit": {Limit: 5, AtOnce: true}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				set, d := parsed(b, dir, `{file: rows.csv, id: "{row.id}", inputs: {text: "{row.text}"}, criteria: {c: {want: "{row.want}"}}}`)
				chosen, err := set.Choose(wanted)
				if err != nil {
					b.Fatal(err)
				}
				add := chosen.Add
				if name == "scan" {
					add = func(eval.Evaluation) error { return nil }
				}
				var r input.Reader
				if err := d.Each(&r, add); err != nil || r.Problems != nil {
					b.Fatal(err, r.Problems)
				}
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MB")
				runtime.KeepAlive(chosen)
			}
		})
	}
}
