package report

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// The limits of a log in a failure: lines that are shown, and bytes that are read from its end.
const (
	logLines = 8
	logBytes = 16 << 10
)

// logs shows what the agent, or the task's verifier, printed last, and says where the rest is.
func (x explainer) logs(f *failure, one *schemas.Rollout) {
	if log := x.verifierLog(one); log != "" && x.verdict(one) != passed {
		f.add("verifier", strings.Join(lastLines(log, logLines), "\n"))
		f.add("log", place(log, x.showing.Dir, x.storeDir))
	}
	at := -1
	for i, log := range one.Logs {
		if filepath.Base(log) == record.FileStderr {
			at = i
		}
	}
	if at < 0 || x.storeDir == "" {
		return
	}
	local, err := filepath.Localize(one.Logs[at])
	log := filepath.Join(x.storeDir, local)
	if err != nil || !isFile(log) {
		return // the document is from elsewhere, or the run's files were removed
	}
	if last := lastLines(log, 1); len(last) == 1 && one.Error == nil {
		f.add("stderr", last[0])
	}
	f.add("log", place(log, x.showing.Dir, x.storeDir))
}

// verifierLog is the log of a task's verifier, or of that of its last step. It is empty if there is
// none.
func (r *Report) verifierLog(one *schemas.Rollout) string {
	if r.storeDir == "" {
		return ""
	}
	folder := files.Store(r.storeDir).Run(r.RunID).Rollout(one.RolloutID)
	log := filepath.Join(folder.Verifier(), record.VerifierLog)
	for _, step := range one.Steps {
		if own := filepath.Join(folder.Step(step.Name).Verifier(), record.VerifierLog); isFile(own) {
			log = own
		}
	}
	if !isFile(log) {
		return ""
	}
	return log
}

// verifierEnd returns the last lines that the verifier of a task printed, nil if there are none.
func (r *Report) verifierEnd(one *schemas.Rollout) []string {
	log := r.verifierLog(one)
	if log == "" {
		return nil
	}
	return lastLines(log, logLines)
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// lastLines returns the last lines of a file that are not blank.
func lastLines(path string, n int) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > logBytes {
		_, _ = file.Seek(-logBytes, io.SeekEnd)
	}
	data, err := io.ReadAll(io.LimitReader(file, logBytes))
	if err != nil {
		return nil
	}
	all := textLines(string(data))
	return all[max(0, len(all)-n):]
}

// place names a file as one would from dir, or within the store.
func place(path, dir, storeDir string) string {
	if dir == "" {
		dir = storeDir
	}
	if rel, err := filepath.Rel(dir, path); err == nil && (len(rel) < len(path) || dir == storeDir) {
		path = rel
	}
	return redact.Line(path)
}
