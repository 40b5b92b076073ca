package store

import (
	"context"
	"encoding/json"
	"time"
)

// Rescorings scores completed rollouts again. It needs no lease: a rescoring marks the rollouts
// that are due, and its results of a rollout take the place of the earlier ones in one transaction,
// once.
type Rescorings interface {
	// BeginRescoring begins a rescoring of a run and returns its number. It takes the place of one
	// that has not ended. ErrFenced means that r.After is not the last one any more.
	BeginRescoring(ctx context.Context, r NewRescoring) (number int, err error)
	// Rescore records what a rescoring says of some rollouts. Those that are not due for it, because
	// another process was faster or another rescoring has begun, stay as they are.
	Rescore(ctx context.Context, runID string, number int, rollouts ...Rescored) error
	// Rescorings returns the rescorings of a run in order.
	Rescorings(ctx context.Context, runID string) ([]Rescoring, error)
	// DueRollouts returns the ids of the rollouts that are due for a rescoring, in the order of the
	// plan.
	DueRollouts(ctx context.Context, runID string, number int) ([]string, error)
	// Rescorables returns rollouts, each with what a rescoring needs of it, in the order of the ids.
	// ErrNotFound means that there is none with one of them.
	Rescorables(ctx context.Context, number int, rolloutIDs ...string) ([]Rescorable, error)
}

// Rescoring is one time that completed rollouts of a run are scored again.
type Rescoring struct {
	// Number counts the rescorings of the run from 1. 0 stands for what the rollouts ended with.
	Number int
	// Data says what it scores with, a JSON document of the caller's.
	Data json.RawMessage
	// BegunAt is set by BeginRescoring. EndedAt is set when no rollout is due any more, or another
	// rescoring takes its place; zero before that.
	BegunAt time.Time
	EndedAt time.Time
	// Due counts the rollouts that are still to be scored, Scored those that were, and Unscored
	// those that were left as they are.
	Due, Scored, Unscored int
}

// NewRescoring is what BeginRescoring stores.
type NewRescoring struct {
	RunID string
	// After is the number of the last rescoring of the run that the caller knows of.
	After int
	Data  json.RawMessage
	// Evaluations take the place of those of the plan with the same ids.
	Evaluations []Evaluation
	// Rollouts are due. If it is nil, every completed rollout is.
	Rollouts []string
}

// Rescored is what a rescoring says of a rollout.
type Rescored struct {
	RolloutID string
	// Results are all results from now on, those that are kept among them.
	Results []Result
	Score   *float64
	// Unscored says why the rollout is left as it is. If it is not empty, Results and Score are not
	// read.
	Unscored string
}

// Rescorable is a rollout that is to be scored again.
type Rescorable struct {
	Rollout
	// Evaluation is that of the rescoring, or else of the plan.
	Evaluation json.RawMessage
	Segments   []Segment
	Results    []Result
	RescoringState
}

// RescoringState says what rescorings have made of a rollout. Its zero value is that of a rollout
// that was never scored again.
type RescoringState struct {
	// Rescoring is the one that the rollout's results are of.
	Rescoring int
	// Due is the one that is still to score it, 0 if none is.
	Due int
	// Unscored says why the last one has left it as it was.
	Unscored string
}

// Scoring is the state of a rollout whose agent has finished, and of whose evaluators at least one
// waits: for a person, or for a job. Nobody holds it. It can be claimed when everything that one of
// these evaluators waits for has arrived, and only for its evaluators: its agent never runs again.
type Scoring interface {
	// WaitForScores puts a rollout that is being evaluated into the state scoring, and gives up the
	// claim. An evaluator that waits again has consumed what it was resumed with; one that goes on
	// waiting keeps its triggers.
	WaitForScores(ctx context.Context, t Token, w ScoreWait) (Committed, error)
}

// ScoreWait is what WaitForScores records.
type ScoreWait struct {
	// Results of evaluators that were not recorded yet.
	Results []Result
	// Triggers are those of each evaluator that begins to wait, or waits again, in order.
	Triggers []NewTrigger
	// Timeout, if not zero, is the deadline of these triggers counted from the commit.
	Timeout time.Duration
}
