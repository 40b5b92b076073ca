package eval

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzToolCalls reads anything as the spans of a trace.
func FuzzToolCalls(f *testing.F) {
	f.Add([]byte(`{"attributes":{"tool.name":"a","input.value":"{\"x\":1}","output.value":"{\"content\":\"y\"}"}}` + "\n" + `{"attributes":[{"key":"tool.name","value":{"stringValue":"b"}}]}`))
	f.Add([]byte(`{"attributes":{"tool.name":1}}` + "\n" + `[]` + "\n" + `null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var spans []json.RawMessage
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			if json.Valid(line) {
				spans = append(spans, line)
			}
		}
		if calls := ToolCalls(spans); len(calls) > 0 && len(spans) == 0 {
			t.Errorf("%d calls of no span", len(calls))
		}
	})
}
