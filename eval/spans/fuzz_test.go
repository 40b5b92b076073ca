package spans

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
		segments := [][]json.RawMessage{nil}
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			if len(line) == 0 {
				segments = append(segments, nil)
			} else {
				segments[len(segments)-1] = append(segments[len(segments)-1], line)
			}
		}
		if _, err := json.Marshal(ToolCalls(segments)); err != nil {
			t.Error(err)
		}
	})
}
