package store

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
)

// Plan is what CreateRun stores: a run and its rollouts.
type Plan struct {
	RunID             string
	Name              string
	EvaluationSetID   string
	EvaluationSetName string
	// RetryOf is the run whose faulted rollouts this one repeats; empty otherwise.
	RetryOf string
	// Data is the rest of the plan as the runner wrote it (evaluators, agents, limits), without the evaluations.
	Data        json.RawMessage
	Evaluations []Evaluation
	Rollouts    []PlannedRollout
}

// Evaluation is one evaluation of a plan.
type Evaluation struct {
	ID   string
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
	// All says that the rollout resumes only when every interrupt has been answered; otherwise any one does.
	All bool
	// AcceptsFaults says that the agent can take a faulted delivery; otherwise the rollout faults with it.
	AcceptsFaults bool
}

// Run is one execution of an eval set.
type Run struct {
	ID                string
	Name              string
	EvaluationSetID   string
	EvaluationSetName string
	RetryOf           string
	CreatedAt         time.Time
	// FinishedAt is zero while a rollout can still change.
	FinishedAt time.Time
	// Revision grows with every transaction that changes the run, Seq is the number of its last event.
	Revision int64
	Seq      int64
	Counts   Counts
}

// Final reports whether no rollout can change any more.
func (r Run) Final() bool { return !r.FinishedAt.IsZero() }

// Counts counts the rollouts of a run by state.
type Counts struct {
	Total, Pending, Running, Suspended, Evaluating, Completed, Faulted, Cancelled int
}

// Activity is what goes on of a run.
type Activity struct {
	// Held are the rollouts that a living process holds, Delayed those that wait for the end of a backoff.
	Held, Delayed int
}

// Rollout is one attempt of one agent at one evaluation.
type Rollout struct {
	ID             string
	RunID          string
	EvaluationID   string
	EvaluationName string
	Agent          string
	Epoch          int
	State          eval.State
	// Segment is the number of the last segment started (0: none), Attempt its last attempt.
	Segment int
	Attempt int
	// Failures counts the failed attempts of the segment, Suspensions the suspensions so far.
	Failures    int
	Suspensions int
	// Fault is set in a faulted rollout, Score in a completed one that was scored.
	Fault *fault.Fault
	Score *float64
	// CreatedAt, StateSince and FinishedAt are by the store's clock; FinishedAt is zero while the rollout can change.
	CreatedAt  time.Time
	StateSince time.Time
	FinishedAt time.Time
	Clocks     Clocks
}

// Clocks say where a rollout's time went. They add up to its age.
type Clocks struct {
	Working, Waiting, Queued, Evaluating time.Duration
}

// Wall is the sum of the clocks.
func (c Clocks) Wall() time.Duration { return c.Working + c.Waiting + c.Queued + c.Evaluating }

// Token says that its bearer held the rollout when it was claimed.
type Token struct {
	RolloutID string
	Fence     int64
}

// Claim is a rollout that this process may now work on.
type Claim struct {
	Token
	// Rollout is the row after the claim: its state is running or, if only evaluators are missing, evaluating.
	Rollout
	Evaluation json.RawMessage
	// Repeats says that the segment was begun before: by a process that is gone (TakenOver), or it failed and is tried again.
	Repeats   bool
	TakenOver bool
	// Cancelled says that the rollout is to be ended without running its agent again: it was cancelled, and its holder died before
	// it had ended it.
	Cancelled bool
	// Deliveries are what the segment is resumed with; every attempt of a segment gets the same.
	Deliveries []Trigger
	// Output and Results are set when evaluators are missing: the agent's output and the results that are there.
	Output  json.RawMessage
	Results []Result
}

// Segment is one attempt of one segment.
type Segment struct {
	RolloutID string
	Number    int
	Attempt   int
	Outcome   Outcome
	StartedAt time.Time
	EndedAt   time.Time
	Output    json.RawMessage
	Fault     *fault.Fault
	// Files are the files of the attempt with their SHA-256.
	Files []File
	// Info is SegmentEnd.Info.
	Info json.RawMessage
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
	// Triggers of a suspended segment: one for each sibling of each interrupt that the agent now waits for, in order.
	Triggers []NewTrigger
	// SuspendTimeout, if not zero, is the deadline of the suspension counted from its commit.
	SuspendTimeout time.Duration
	// Fault of a failed segment. RetryAfter is the backoff before it is repeated; Retry false makes the rollout faulted.
	Fault      *fault.Fault
	Retry      bool
	RetryAfter time.Duration
	Files      []File
	// Info is what is to be reported of the attempt beside its output, a JSON document of the runner's; nil if there is nothing.
	Info json.RawMessage
	// Queued is how long the rollout waited after its claim before its agent was started. It is no working time.
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

// NewTrigger is a trigger to be made of an interrupt.
type NewTrigger struct {
	InterruptID string
	Type        string
	Name        string
	Source      string
	// ItemKey is the key of the job, task or timer; where it is empty it is made of KeyPrefix and the trigger's id.
	ItemKey    string
	KeyPrefix  string
	FolderPath string
	FolderKey  string
	Spec       json.RawMessage
	// Digest changes with what is waited for. A trigger whose interrupt comes again with another digest is superseded.
	// Where either digest is empty the interrupt counts as unchanged.
	Digest string
	// Start says that its job must be started: the trigger is intended. Checked says that the source can be asked and its job cancelled.
	Start   bool
	Checked bool
	// NextCheck is when to ask first; zero means now.
	NextCheck time.Time
}

// Trigger is the durable record of what would resume a rollout.
type Trigger struct {
	ID             string
	RunID          string
	RolloutID      string
	EvaluationID   string
	EvaluationName string
	InterruptID    string
	// Occurrence counts from 0 how often the interrupt id came again, Sibling the triggers of one interrupt.
	Occurrence int
	Sibling    int
	Type       string
	Name       string
	Source     string
	ItemKey    string
	FolderPath string
	FolderKey  string
	Spec       json.RawMessage
	State      TriggerState
	// Segment is the segment whose end made the trigger, TakenBy the segment that was resumed with it (0: none).
	Segment   int
	TakenBy   int
	CreatedAt time.Time
	StartedAt time.Time
	// Deadline is when the suspension times out, zero if never. NextDue is when the trigger can be claimed again.
	Deadline time.Time
	NextDue  time.Time
	// OverdueSince is when the trigger was first claimed after its deadline, zero before that.
	OverdueSince time.Time
	// Checks counts the checks at the source, Attempts the attempts to start the job.
	Checks   int
	Attempts int
	// Failures counts the calls of the source that failed since the last one that did not; LastError is the error of the last.
	Failures  int
	LastError string
	// The accepted delivery, once there is one.
	DeliveredAt time.Time
	Status      Status
	Payload     json.RawMessage
	Fault       *fault.Fault
}

// TriggerToken says that its bearer had claimed the trigger.
type TriggerToken struct {
	TriggerID string
	Fence     int64
}

// TriggerFailure is a call of a source that failed.
type TriggerFailure struct {
	Error string
	// NotStarted says that the job was certainly not started, by this claim or before: it is intended again.
	NotStarted bool
}

// Action is what a claimed trigger needs.
type Action string

// The actions.
const (
	ActionStart   Action = "start"   // start its job; the intent is recorded
	ActionResolve Action = "resolve" // its job may have been started; once OverdueSince is set it must not be started any more
	ActionCheck   Action = "check"   // ask its source
	ActionExpire  Action = "expire"  // its deadline has passed: ask its source once more if its job was started, then let it expire
	ActionCancel  Action = "cancel"  // try once to cancel its job
)

// TriggerClaim is a trigger that this process may now act on.
type TriggerClaim struct {
	TriggerToken
	Trigger
	Action Action
	// Until is when the claim runs out unless it is renewed. Nothing that another process must not do again may begin later.
	Until time.Time
}

// Status says what a delivery brought.
type Status string

// The statuses.
const (
	StatusSuccessful Status = "successful"
	StatusFaulted    Status = "faulted"
	StatusCancelled  Status = "cancelled"
	StatusExpired    Status = "expired"
)

// Delivery is a payload handed in for a trigger, addressed by the trigger's id or by source and item key.
type Delivery struct {
	TriggerID string
	Source    string
	ItemKey   string
	Status    Status
	Payload   json.RawMessage
	Fault     *fault.Fault
	// By says who delivered it: "deliver", "approve", "source", …
	By string
	// Fence, if not zero, is that of the claim under which the source was asked: the delivery of a process whose claim has been
	// taken over is refused with ErrFenced. Without it somebody else than the source delivers: that is late after the deadline,
	// and in time it takes the place of the job, which is cancelled.
	Fence int64
}

// Delivered is a delivery as the store keeps it.
type Delivered struct {
	Delivery
	ReceivedAt  time.Time
	Disposition Disposition
}

// Disposition says what became of a delivery.
type Disposition string

// The dispositions.
const (
	Accepted  Disposition = "accepted"
	Duplicate Disposition = "duplicate" // the trigger has a delivery already; this one is kept and shown
	Late      Disposition = "late"      // nobody waits for it any more, or the deadline has passed
	Parked    Disposition = "parked"    // nothing matches yet; kept for 7 days
)

// Receipt is the answer to a delivery.
type Receipt struct {
	Disposition Disposition
	// Trigger is the trigger that it was matched with; its ID is empty if it was parked.
	Trigger Trigger
	// Accepted are all the triggers that have accepted it. Several may wait for one source and item key.
	Accepted []Trigger
}

// Result is what one evaluator said of a rollout.
type Result struct {
	EvaluatorID string
	// Data is the evaluator's results as JSON.
	Data json.RawMessage
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
	// Work is what it has started; nil as long as that is not known.
	Work json.RawMessage
}

// Backlog says what is left to do.
type Backlog struct {
	// Runnable rollouts can be claimed now, Delayed ones after a backoff; Held ones are being worked on by somebody whose lease is good.
	Runnable, Delayed, Held int
	// Due counts the triggers that can be claimed now.
	Due int
	// NextDue is the next time at which something becomes claimable without anybody's doing; zero if never.
	NextDue time.Time
}

// Idle reports that nothing can be done until something outside happens or a trigger becomes due.
func (b Backlog) Idle() bool { return b.Runnable == 0 && b.Delayed == 0 && b.Held == 0 && b.Due == 0 }

// Event is one entry of a run's log.
type Event struct {
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"time"`
	Type      EventType       `json:"type"`
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
	RolloutResumed   EventType = "rollout.resumed"
	RolloutRetried   EventType = "rollout.retried"
	RolloutEvaluated EventType = "rollout.evaluated"
	RolloutFinished  EventType = "rollout.finished"
	RunFinished      EventType = "run.finished"
)
