package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/store"
)

// maxTrace is the most bytes of a trace that are read.
const maxTrace = 64 << 20

// ReadTrace reads the spans that an agent left in the directory of a segment: one JSON object a
// line. Lines that are not JSON objects are skipped and counted, such as the last one of an agent
// that was killed while it wrote. Of a trace over 64 MiB the rest is left out, and the line that is
// cut counts as skipped. A missing trace is no error.
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

// TraceDirs returns the folders in and below that of a segment's attempt in which its agent left a
// trace, those of a task's steps in order.
func TraceDirs(dir string, files []store.File) []string {
	var out []string
	for _, f := range files {
		if path.Base(f.Name) == FileTrace {
			out = append(out, filepath.Join(dir, filepath.FromSlash(path.Dir(f.Name))))
		}
	}
	return out
}
