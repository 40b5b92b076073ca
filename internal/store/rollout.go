package store

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
)

// Rollout is one attempt of one agent at one evaluation.
type Rollout struct {
	// CreateRun copies from the plan what is to be run.
	ID             string
	RunID          string
	EvaluationID   string
	EvaluationName string
	Agent          string
	Epoch          int
	// State is set by CreateRun. It is changed by Claim, Release and CommitSegment, by WaitForScores,
	// Finish and FinishFaulted, and by Deliver and Cancel where they end the rollout.
	State eval.State
	// Segment is the number of the last segment begun, counted by Claim; 0 means none.
	Segment int
	// Attempt is the last attempt of that segment. Claim counts it; Release takes it back.
	Attempt int
	// Failures counts the attempts of the segment that CommitSegment recorded as failed. Claim sets
	// it to 0 with the next segment.
	Failures int
	// Suspensions counts the segments that CommitSegment recorded as suspended.
	Suspensions int
	// Scorings counts how often WaitForScores has put it into the state scoring.
	Scorings int
	// Fault is set by whatever makes the rollout faulted.
	Fault *fault.Fault
	// Score is set by Finish, if the rollout could be scored, and by Rescore.
	Score *float64
	// CreatedAt is set by CreateRun.
	CreatedAt time.Time
	// StateSince is set with each change of State.
	StateSince time.Time
	// FinishedAt is set by the change to a terminal state; zero before that.
	FinishedAt time.Time
	// Clocks grow with each change of State, by the time that the last state took.
	Clocks Clocks
}

// Clocks say where a rollout's time went. They add up to its age.
type Clocks struct {
	Working, Waiting, Queued, Evaluating time.Duration
	// Scoring is that part of Waiting in which an evaluator waited.
	Scoring time.Duration
}

// Wall is the sum of the clocks.
func (c Clocks) Wall() time.Duration { return c.Working + c.Waiting + c.Queued + c.Evaluating }

// Token says that its bearer held the rollout when it was claimed.
type Token struct {
	RolloutID string
	// Fence grows with each claim of the rollout.
	Fence int64
}

// Tokens name claims of every kind.
type Tokens struct {
	Rollouts []Token
	Triggers []TriggerToken
	Batches  []BatchToken
}

// Claim is a rollout that this process may now work on.
type Claim struct {
	Token
	// Rollout is the row after the claim: its state is running or, if only evaluators are missing,
	// evaluating.
	Rollout
	// Evaluation is Evaluation.Data of the plan.
	Evaluation json.RawMessage
	// Repeats says that the segment was begun before: it failed and is tried again, or its process
	// is gone.
	Repeats bool
	// TakenOver says that another process held the rollout, whose lease is void.
	TakenOver bool
	// Cancelled says that the rollout is to be ended without running its agent again: it was
	// cancelled, and its holder died before it had ended it.
	Cancelled bool
	// Deliveries are what the segment is resumed with; every attempt of a segment gets the same.
	// When only evaluators are missing they are those of the evaluators for whom everything that
	// they wait for has arrived, until each has a result or waits again.
	Deliveries []Trigger
	// Waiting are the ids of the evaluators that wait for more than has arrived.
	Waiting []string
	// Output is the agent's output. It is set when only evaluators are missing.
	Output json.RawMessage
	// Results are those that are there already. They are set when only evaluators are missing.
	Results []Result
}

// Outcome is how an attempt of a segment ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeSuspended Outcome = "suspended"
	OutcomeFailed    Outcome = "failed"
	// OutcomeInterrupted is an attempt that evalrun broke off itself. It is repeated and does not
	// count against retry.max.
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeCancelled   Outcome = "cancelled"
)

// Segment is one attempt of one segment. CommitSegment writes it from a SegmentEnd; Claim writes
// one that was interrupted for a holder that is gone. It never changes.
type Segment struct {
	RolloutID string
	// Number and Attempt are Rollout.Segment and Rollout.Attempt while it ran.
	Number  int
	Attempt int
	Outcome Outcome
	// StartedAt is when its agent was started, after the rollout had waited for a slot.
	StartedAt time.Time
	// EndedAt is when it was committed, or the last sign of life of a holder that is gone.
	EndedAt time.Time
	Output  json.RawMessage
	Fault   *fault.Fault
	Files   []File
	Info    json.RawMessage
}

// File is a file of a segment.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// SegmentEnd is what CommitSegment records.
type SegmentEnd struct {
	Outcome Outcome
	// Output of a completed segment.
	Output json.RawMessage
	// Triggers of a suspended segment: one for each sibling of each interrupt that the agent now
	// waits for, in order.
	Triggers []NewTrigger
	// SuspendTimeout, if not zero, is the deadline of the suspension counted from its commit.
	SuspendTimeout time.Duration
	// Fault of a failed segment.
	Fault *fault.Fault
	// Retry says that a failed segment is repeated, RetryAfter after how long. Otherwise the
	// rollout faults.
	Retry      bool
	RetryAfter time.Duration
	// Files are the files of the attempt with their SHA-256.
	Files []File
	// Kept has the files that the store itself is to have for the next segment, or for evaluators:
	// Files and Blocks, of which CommitSegment makes sure that they are there. It is nil if they are in
	// their folders alone.
	Kept *Kept
	// Info is what is to be reported of the attempt beside its output, a JSON document of the
	// caller's; nil if there is nothing.
	Info json.RawMessage
	// Queued is how long the rollout waited after its claim before its agent was started. It is no
	// working time.
	Queued time.Duration
	// Held is how long the agent waited for calls that were held open for it. It is waiting time.
	Held time.Duration
}

// Committed is what followed from a committed segment.
type Committed struct {
	State eval.State
	// Ready says that the rollout can be resumed already: a delivery was in the mailbox.
	Ready bool
}

// Result is what one evaluator said of a rollout. RecordResult, WaitForScores or Finish writes it,
// once, and Rescore replaces it.
type Result struct {
	EvaluatorID string
	// Data is the evaluator's results as JSON.
	Data json.RawMessage
	// Rescoring is the number of the rescoring that it is of, 0 if of none.
	Rescoring int
}

// CallKey says which calls of tools that an agent makes are equal.
type CallKey struct {
	Server string
	Tool   string
	// Arguments is a digest of the arguments.
	Arguments string
}

// Call is a call of a tool that may start something that outlives the agent.
type Call struct {
	// ID is derived from the rollout, the key and how many equal calls have ended before.
	ID string
	// New says that the call was not there before.
	New bool
	// Work is what it has started, as CallStarted recorded it; nil as long as that is not known.
	Work json.RawMessage
}
