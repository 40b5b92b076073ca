package uipath_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
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
	e, err := kinds.All.New(evaltest.Definition("uipath-json-similarity", `{}`))
	if err != nil {
		b.Fatal(err)
	}
	s := eval.Subject{
		Evaluation: eval.Evaluation{Criteria: map[string]json.RawMessage{"e": json.RawMessage(`{"expectedOutput":` + document.String() + `}`)}},
		Output:     bytes.ReplaceAll(document.Bytes(), []byte("row number"), []byte("line")),
	}
	b.SetBytes(int64(document.Len()))
	for b.Loop() {
		if r := e.Evaluate(context.Background(), s).Results; r[0].Error != "" {
			b.Fatal(r[0].Error)
		}
	}
}
