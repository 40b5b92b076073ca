package store

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// Plan is what CreateRun stores: a run and its rollouts. It never changes.
type Plan struct {
	RunID             string
	Name              string
	EvaluationSetID   string
	EvaluationSetName string
	// RetryOf is the run whose faulted rollouts this one repeats; empty otherwise.
	RetryOf string
	// Priority is above that of others if the run goes before them.
	Priority int
	// Data is the rest of the plan, a JSON document of the caller's, without the evaluations.
	Data json.RawMessage
	// Blocks are the sums of the blocks that Data needs. They stay for as long as the run.
	Blocks      []string
	Evaluations []Evaluation
	Rollouts    []PlannedRollout
	// Job, if not nil, is what the run is submitted as.
	Job *NewJob
	// Notify are the targets that are told of the run's events.
	Notify []NotifyTarget
}

// Evaluation is one evaluation of a plan.
type Evaluation struct {
	ID string
	// Data is the evaluation, a JSON document of the caller's.
	Data json.RawMessage
}

// PlannedRollout is one rollout of a plan.
type PlannedRollout struct {
	ID string
	// Evaluation is an index into Plan.Evaluations.
	Evaluation     int
	EvaluationName string
	Agent          string
	Epoch          int
	// Fault, if set, makes the rollout faulted from the start: it cannot be run.
	Fault *fault.Fault
	// All says that the rollout resumes only when every interrupt has been answered; otherwise any
	// one does.
	All bool
	// AcceptsFaults says that the agent can take a faulted delivery; otherwise the rollout faults
	// with it.
	AcceptsFaults bool
	// Tags are what a process must have to claim it.
	Tags []string
}

// Run is one execution of an eval set.
type Run struct {
	// CreateRun copies from the plan what the run is.
	ID                string
	Name              string
	EvaluationSetID   string
	EvaluationSetName string
	RetryOf           string
	// CreatedAt is set by CreateRun.
	CreatedAt time.Time
	// FinishedAt is set by the transaction that ends the last rollout; zero before that.
	FinishedAt time.Time
	// Revision grows with every transaction that changes the run.
	Revision int64
	// Seq is the number of the last event.
	Seq int64
	// Counts are counted when the run is read.
	Counts Counts
}

// Final reports whether no rollout can change any more.
func (r Run) Final() bool { return !r.FinishedAt.IsZero() }

// Counts counts the rollouts of a run by state.
type Counts struct {
	Total, Pending, Running, Suspended, Evaluating, Scoring, Completed, Faulted, Cancelled int
}

// Activity says what goes on in a run.
type Activity struct {
	// Held counts the rollouts that a living process holds.
	Held int
	// Delayed counts the rollouts that wait for the end of a backoff.
	Delayed int
}

// Backlog says what is left to do.
type Backlog struct {
	// Runnable rollouts can be claimed now, Delayed ones after a backoff. Held ones are being
	// worked on by somebody whose lease is good.
	Runnable, Delayed, Held int
	// Limited rollouts could be claimed now if a limit had room, Unfit ones by a process with other
	// tags.
	Limited, Unfit int
	// Due counts the triggers that can be claimed now.
	Due int
	// NextDue is the next time at which something becomes claimable without anybody's doing; zero
	// if never.
	NextDue time.Time
}

// Idle reports that nothing can be done until something outside happens or a trigger becomes due.
func (b Backlog) Idle() bool {
	return b.Runnable == 0 && b.Delayed == 0 && b.Held == 0 && b.Due == 0 && b.Limited == 0 && b.Unfit == 0
}

// Event is one entry of a run's log. It is written by the transaction that made the change, and
// never changes.
type Event struct {
	// Seq counts the events of the run from 1.
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Type EventType `json:"type"`
	// RunID is the run, RolloutID the rollout that the event is about, if it is about one.
	RunID     string          `json:"runId"`
	RolloutID string          `json:"rolloutId,omitempty"`
	Data      json.RawMessage `json:"data"`
}

// EventType is the type of an event.
type EventType string

// The event types.
const (
	RunCreated       EventType = "run.created"
	RolloutStarted   EventType = "rollout.started"
	RolloutSuspended EventType = "rollout.suspended"
	TriggerDelivered EventType = "trigger.delivered"
	QuestionAsked    EventType = "question.asked"
	RolloutResumed   EventType = "rollout.resumed"
	RolloutRetried   EventType = "rollout.retried"
	RolloutScoring   EventType = "rollout.scoring"
	RolloutEvaluated EventType = "rollout.evaluated"
	RolloutFinished  EventType = "rollout.finished"
	RunFinished      EventType = "run.finished"
	RunRescored      EventType = "run.rescored"
)
