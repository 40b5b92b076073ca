package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func BenchmarkJSONSimilarity(b *testing.B) {
	var document bytes.Buffer
	document.WriteString(`{"rows":[`)
	for i := range 1000 {
		if i > 0 {
			document.WriteByte(',')
		}
		fmt.Fprintf(&document, `{"id":%d,"name":"row number %d","ok":true}`, i, i)
	}
	document.WriteString(`]}`)
	e, err := All.New(definition("uipath-json-similarity", `{}`))
	if err != nil {
		b.Fatal(err)
	}
	s := Subject{
		Evaluation: Evaluation{Criteria: map[string]json.RawMessage{"e": json.RawMessage(`{"expectedOutput":` + document.String() + `}`)}},
		Output:     bytes.ReplaceAll(document.Bytes(), []byte("row number"), []byte("line")),
	}
	b.SetBytes(int64(document.Len()))
	for b.Loop() {
		if r := e.Evaluate(context.Background(), s).Results; r[0].Error != "" {
			b.Fatal(r[0].Error)
		}
	}
}

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
		if _, _, err := Parse("s.json", set, files); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatistics(b *testing.B) {
	set := &Set{Epochs: 5, Evaluators: []Definition{definition("uipath-exact-match", `{}`)}, Thresholds: Thresholds{Pass: 1}}
	s := NewStatistics(set)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(completed(fmt.Sprint(i/5), score("e", 1)))
	}
}
