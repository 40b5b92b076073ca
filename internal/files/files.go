// Package files knows where the files of a store are: those of runs, of their rollouts and segments,
// and of local jobs. It reads and writes none of them.
package files

import (
	"path/filepath"
	"strconv"
)

// Store is the folder of a store's files on this machine. Everything in it but the database and the
// jobs can be read without evalrun.
type Store string

// Of is the folder of a store.
func Of(s interface{ Dir() string }) Store { return Store(s.Dir()) }

func (s Store) in(names ...string) string { return filepath.Join(string(s), filepath.Join(names...)) }

// Runs is the folder that has those of the runs.
func (s Store) Runs() string { return s.in("runs") }

// Run is the folder of a run.
func (s Store) Run(id string) Run { return Run(s.in("runs", id)) }

// Work is the folder of what the agent of a rollout keeps: its workspace and, while a segment runs, a
// copy from the segment's start.
func (s Store) Work(rolloutID string) string { return s.in("work", rolloutID) }

// Job is the folder of the local job of a trigger.
func (s Store) Job(triggerID string) string { return s.in("jobs", triggerID) }

// Wake is the folder of the sockets by which the processes of a store tell each other of commits.
func (s Store) Wake() string { return s.in("wake") }

// JobsWake is the folder of the sockets by which processes hear of the ends of local jobs.
func (s Store) JobsWake() string { return s.in("wake", "jobs") }

// JudgeCache is the folder of what judges have said.
func (s Store) JudgeCache() string { return s.in("judge-cache") }

// Run is the folder of a run.
type Run string

// Results is the results document of the run.
func (r Run) Results() string { return filepath.Join(string(r), "results.json") }

// Events is the log of the run's events, a line each.
func (r Run) Events() string { return filepath.Join(string(r), "events.jsonl") }

// Set is the copy of the eval set's folder on a machine that does not have it.
func (r Run) Set() string { return filepath.Join(string(r), "set") }

// Log is the log of the run that has the name.
func (r Run) Log(name string) string { return filepath.Join(string(r), name) }

// ScoreLock is held by the process that scores the run again.
func (r Run) ScoreLock() string { return filepath.Join(string(r), "score.lock") }

// Rollout is the folder of one of its rollouts.
func (r Run) Rollout(id string) Rollout { return Rollout(filepath.Join(string(r), "rollouts", id)) }

// Rollout is the folder in which people find the files of a rollout.
type Rollout string

// InternalLog is the name of the file that records how evalrun itself has failed with a rollout.
const InternalLog = "internal.log"

// InternalLog is the path of that file.
func (r Rollout) InternalLog() string { return filepath.Join(string(r), InternalLog) }

// Segment is the folder of one attempt of a segment.
func (r Rollout) Segment(number, attempt int) string {
	return filepath.Join(string(r), "segments", strconv.Itoa(number)+"."+strconv.Itoa(attempt))
}

// Verifier is the folder of what the verifier of a task has left.
func (r Rollout) Verifier() string { return filepath.Join(string(r), "verifier") }

// Step is the part of the folder about one step of a task.
func (r Rollout) Step(name string) Rollout { return Rollout(filepath.Join(string(r), "steps", name)) }
