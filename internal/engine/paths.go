package engine

import (
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/store"
)

// The folders of a store. Everything in them but store.db and jobs can be read without evalrun.

// RunDir is the folder of a run: results.json, events.jsonl and its rollouts.
func RunDir(storeDir, runID string) string { return filepath.Join(storeDir, "runs", runID) }

// RolloutDir is the folder of a rollout.
func RolloutDir(storeDir, runID, rolloutID string) string {
	return filepath.Join(RunDir(storeDir, runID), "rollouts", rolloutID)
}

// SegmentDir is the folder of one attempt of a segment.
func SegmentDir(storeDir, runID, rolloutID string, segment, attempt int) string {
	return filepath.Join(RolloutDir(storeDir, runID, rolloutID), "segments", strconv.Itoa(segment)+"."+strconv.Itoa(attempt))
}

// WorkDir is the folder of what a rollout's agent keeps: its workspace and, before a segment is repeated, a copy of it.
func WorkDir(storeDir, rolloutID string) string { return filepath.Join(storeDir, "work", rolloutID) }

// JobDir is the folder of a local job.
func JobDir(storeDir, triggerID string) string { return filepath.Join(storeDir, "jobs", triggerID) }

// Workspace is the folder that an agent gets.
func Workspace(storeDir, rolloutID string) string {
	return filepath.Join(WorkDir(storeDir, rolloutID), "workspace")
}

// StateDir is where the environments without isolation are: $XDG_STATE_HOME/evalrun, else ~/.local/state/evalrun.
func StateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "evalrun")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "state", "evalrun")
}

// TraceDirs are the folders below that of a segment's attempt in which its agent has left a trace, those of a task's steps in order.
func TraceDirs(dir string, files []store.File) []string {
	var out []string
	for _, f := range files {
		if path.Base(f.Name) == agent.FileTrace {
			out = append(out, filepath.Join(dir, filepath.FromSlash(path.Dir(f.Name))))
		}
	}
	return out
}
