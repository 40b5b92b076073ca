package eval

import (
	"fmt"
	"testing"
)

func BenchmarkStatistics(b *testing.B) {
	set := &Set{Epochs: 5, Evaluators: []Definition{definition("uipath-exact-match", `{}`)}, Thresholds: Thresholds{Pass: 1}}
	s := NewStatistics(set)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(completed(fmt.Sprint(i/5), score("e", 1)))
	}
}
