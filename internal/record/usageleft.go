package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/store"
)

// FileUsage has the usage of each call of a model through the model proxy, one JSON object a line.
// A line is durable before the agent has the whole answer.
const FileUsage = "usage.jsonl"

// UsageLog is the FileUsage of an attempt.
type UsageLog struct {
	path string
	file *os.File // nil before the first line
}

// NewUsageLog makes the log of an attempt whose folder is dir. The file is made with its first
// line.
func NewUsageLog(dir string) *UsageLog { return &UsageLog{path: filepath.Join(dir, FileUsage)} }

// Append adds a line and makes it durable.
func (l *UsageLog) Append(u eval.Usage) (err error) {
	if l.file == nil {
		if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	line, err := json.Marshal(u)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n'))
	return errors.Join(err, l.file.Sync())
}

// Close closes the file.
func (l *UsageLog) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// UsageLeft reads the use of models from the files of an attempt. It is for attempts that
// left nothing else because evalrun was killed. A file that is missing or torn counts as far as it
// goes. earlier is as for [UsageOf].
func UsageLeft(dir string, earlier []string) ([]eval.Usage, UsageSource, error) {
	var logged []eval.Usage
	logs := []string{filepath.Join(dir, FileUsage)}
	steps, err := os.ReadDir(filepath.Join(dir, FolderSteps))
	for _, step := range steps {
		logs = append(logs, filepath.Join(dir, FolderSteps, step.Name(), FileUsage))
	}
	for _, path := range logs {
		var data []byte
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			data, err = os.ReadFile(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", fmt.Errorf("what an attempt has used: %w", err)
		}
		for line := range bytes.Lines(data) {
			var u eval.Usage
			if json.Unmarshal(line, &u) == nil { // otherwise the line is torn
				logged = append(logged, u)
			}
		}
	}
	if logged != nil {
		return eval.MergeUsage(logged...), UsageOfProxy, nil
	}
	document, err := ReadRegular(filepath.Join(dir, FileOutput), maxTrace)
	if err != nil {
		return nil, "", err
	}
	return UsageOf(dir, document, earlier)
}

// UsageOf returns the usage that a function agent reports for an attempt: in its document, or if
// that is missing, damaged or without usage, in its trace. Spans that are in the traces of the
// earlier attempts, whose folders are given, do not count again.
func UsageOf(dir string, document []byte, earlier []string) ([]eval.Usage, UsageSource, error) {
	if document = bytes.TrimSpace(document); mayTellUsage(document) && json.Valid(document) {
		if used, _, err := SplitUsage(document); err == nil && used != nil {
			return used, UsageOfOutput, nil
		}
	}
	trace, _, err := ReadTrace(dir)
	if err != nil || !spans.TellUsage(trace) {
		return nil, "", err
	}
	seen := map[string]bool{}
	for _, before := range earlier {
		told, _, err := ReadTrace(before)
		if err != nil {
			return nil, "", err
		}
		spans.Usage(told, seen)
	}
	return spans.Usage(trace, seen), UsageOfTrace, nil
}

// UsageOfSegment returns the use of models by an attempt of a segment, whatever its outcome: its
// report, or if it was broken off, the usage in its files in dir. earlier are the folders of the
// attempts before it.
func UsageOfSegment(g store.Segment, dir string, earlier []string) ([]eval.Usage, UsageSource, error) {
	if g.Info == nil {
		if g.Outcome == store.OutcomeCompleted || g.Outcome == store.OutcomeSuspended ||
			g.Outcome == store.OutcomeFailed && len(g.Files) > 0 {
			return nil, "", nil // it could have reported its usage
		}
		return UsageLeft(dir, earlier)
	}
	var info struct {
		Usage  []eval.Usage `json:"usage"`
		Source UsageSource  `json:"usageSource"`
	}
	if err := json.Unmarshal(g.Info, &info); err != nil {
		return nil, "", fmt.Errorf("what segment %d reports: %w", g.Number, err)
	}
	return info.Usage, info.Source, nil
}
