package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// maxTrace is how much of a trace is read.
const maxTrace = 64 << 20

// ReadTrace reads the spans that an agent left in the directory of a segment: one JSON object a
// line. Lines that are not JSON objects are skipped and counted, such as the last one of an agent
// that was killed while it wrote. Of a trace over 64 MiB the rest is left out, and the line that is
// cut counts as skipped. No trace is no error.
func ReadTrace(dir string) (spans []json.RawMessage, skipped int, err error) {
	data, err := ReadRegular(filepath.Join(dir, FileTrace), maxTrace)
	if err != nil {
		return nil, 0, fmt.Errorf("read the agent's trace: %w", err)
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case line[0] == '{' && json.Valid(line):
			spans = append(spans, line)
		default:
			skipped++
		}
	}
	return spans, skipped, nil
}
