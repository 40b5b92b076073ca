package store

import (
	"context"
	"time"
)

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
