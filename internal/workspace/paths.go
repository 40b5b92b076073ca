// Package workspace is the folders of runs and rollouts: where they are, and how what is in them is
// copied in, kept, put back and copied out again, although an agent may have left anything there.
// It knows nothing of agents, stores or tasks.
package workspace

import (
	"os"
	"path/filepath"
	"strconv"
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

// WorkDir is the folder of what a rollout's agent keeps: its workspace and, before a segment is
// repeated, a copy of it.
func WorkDir(storeDir, rolloutID string) string { return filepath.Join(storeDir, "work", rolloutID) }

// JobDir is the folder of a local job.
func JobDir(storeDir, triggerID string) string { return filepath.Join(storeDir, "jobs", triggerID) }

// StateDir is where the environments without isolation are: $XDG_STATE_HOME/evalrun, else
// ~/.local/state/evalrun.
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
