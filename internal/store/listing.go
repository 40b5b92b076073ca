package store

import (
	"context"
	"time"
)

// Listing reads what there is page by page, for those who show it to others.
type Listing interface {
	// ListRuns returns runs, the newest first.
	ListRuns(ctx context.Context, q RunQuery) ([]Run, error)
	// ListRollouts returns up to limit rollouts of a run in the order of the plan, from the one
	// with this number on; the first has the number 0.
	ListRollouts(ctx context.Context, runID string, from, limit int) ([]Rollout, error)
	// Rollout returns one rollout, or ErrNotFound.
	Rollout(ctx context.Context, id string) (Rollout, error)
	// ListTriggers returns triggers, the oldest first, and the place of the last one of them.
	ListTriggers(ctx context.Context, q TriggerQuery) (triggers []Trigger, last int64, err error)
	// RunHead returns a run without its Counts. It costs the same however many rollouts there are.
	RunHead(ctx context.Context, runID string) (Run, error)
	// Parked returns up to limit deliveries that are parked, the oldest first. A delivery by source
	// and item key stays parked when triggers have taken it, because others may follow.
	Parked(ctx context.Context, limit int) ([]Delivered, error)
}

// ParkedFor is how long a delivery that matches nothing is kept.
const ParkedFor = 7 * 24 * time.Hour

// RunQuery chooses runs.
type RunQuery struct {
	// Before, if its id is not empty, leaves out this run and those before it in the order.
	Before RunPlace
	// Final, if not nil, chooses those that are final, or those that are not.
	Final *bool
	Limit int
}

// RunPlace is the place of a run in the order of runs.
type RunPlace struct {
	CreatedAt time.Time
	ID        string
}

// TriggerQuery chooses triggers.
type TriggerQuery struct {
	// RunID and RolloutID, where they are not empty, choose those of a run or a rollout.
	RunID, RolloutID string
	// All also chooses those that wait no more.
	All bool
	// After is the place of the last one that is not wanted any more; 0 begins with the first.
	After int64
	Limit int
}

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
