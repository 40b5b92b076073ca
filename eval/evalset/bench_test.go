package evalset_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/evalset"
)

// largeSet is an eval set of n evaluations.
func largeSet(n int) []byte {
	var set bytes.Buffer
	set.WriteString(`{"version":"1.0","id":"s","name":"S","evaluatorRefs":["exact","has"],"evaluations":[`)
	for i := range n {
		if i > 0 {
			set.WriteString(",\n")
		}
		fmt.Fprintf(&set, `{"id":"e%d","name":"Evaluation %d","inputs":{"a":%d,"text":%q},"evaluationCriterias":{"exact":{"expectedOutput":{"r":%d}},"has":{"searchText":"x"}}}`,
			i, i, i, strings.Repeat("x", 100), i)
	}
	set.WriteString(`]}`)
	return set.Bytes()
}

func BenchmarkLoad10kEvaluations(b *testing.B) {
	set, files := largeSet(10_000), folder()
	b.SetBytes(int64(len(set)))
	for b.Loop() {
		if _, _, err := evalset.Parse("s.json", set, files); err != nil {
			b.Fatal(err)
		}
	}
}
