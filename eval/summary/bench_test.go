package summary

import (
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
)

func BenchmarkStatistics(b *testing.B) {
	set := &eval.Set{Epochs: 5, Evaluators: []eval.Definition{evaltest.Definition("uipath-exact-match", `{}`)}, Thresholds: eval.Thresholds{Pass: 1}}
	s := New(set, kinds.All)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(completed(fmt.Sprint(i/5), score("e", 1)))
	}
}
