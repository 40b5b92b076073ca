package store

import (
	"context"
	"time"
)

// Standings says how runs stand for whoever watches them.
type Standings interface {
	// Standing says what is worked on and waited for in one run, or in all runs if runID is empty.
	// Its cost grows with what is held and waited for, and not with what there is.
	Standing(ctx context.Context, runID string) (Standing, error)
	// CountOpen counts the triggers of all runs that have not ended, of a type and a source.
	CountOpen(ctx context.Context, typ, source string) (int, error)
	// Tally counts the rollouts of a run at one moment. Those that are completed pass with a score of
	// at least pass.
	Tally(ctx context.Context, runID string, pass float64) (Tally, error)
}

// Tally counts the rollouts of a run by state, and those that are completed by their score.
type Tally struct {
	Counts
	// Passed, Failed and Unscored are together Completed.
	Passed, Failed, Unscored int
}

// Standing is what is worked on and waited for.
type Standing struct {
	// Running and Evaluating count the rollouts that a process holds.
	Running, Evaluating int
	// Own counts those of Running that this process holds. Their agents may still wait for a place.
	Own int
	// Runs counts the runs that wait for something, Waiting what they wait for, by type of trigger.
	Runs    int
	Waiting map[string]int
	// NextCheck is when a source is asked next, zero if none is.
	NextCheck time.Time
}
