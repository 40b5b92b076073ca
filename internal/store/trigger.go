package store

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// TriggerState is the state of a trigger.
type TriggerState string

// The states of a trigger.
const (
	TriggerIntended   TriggerState = "intended"   // its job is to be started
	TriggerStarting   TriggerState = "starting"   // its job is being started, or was when somebody died
	TriggerWaiting    TriggerState = "waiting"    // its job goes on
	TriggerFired      TriggerState = "fired"      // a payload has arrived
	TriggerFaulted    TriggerState = "faulted"    // a fault has arrived
	TriggerExpired    TriggerState = "expired"    // its deadline has passed
	TriggerCancelled  TriggerState = "cancelled"  // it was cancelled
	TriggerSuperseded TriggerState = "superseded" // a sibling was first
	TriggerAbandoned  TriggerState = "abandoned"  // its agent does not wait for it any more
	TriggerConsumed   TriggerState = "consumed"   // what followed from its payload has been committed
)

// IsOpen reports whether the trigger still waits for a delivery.
func (s TriggerState) IsOpen() bool {
	return s == TriggerIntended || s == TriggerStarting || s == TriggerWaiting
}

// NewTrigger is a trigger to be made of an interrupt.
type NewTrigger struct {
	InterruptID string
	// EvaluatorID is the evaluator that waits; empty if it is the agent.
	EvaluatorID string
	Type        string
	Name        string
	Source      string
	// ItemKey is the key of the job, task or timer. Where it is empty it is made of KeyPrefix and
	// the trigger's id.
	ItemKey    string
	KeyPrefix  string
	FolderPath string
	FolderKey  string
	// Spec is what the source needs to know, a JSON document of the source's.
	Spec json.RawMessage
	// Digest changes with what is waited for. A trigger whose interrupt comes again with another
	// digest is superseded. Where either digest is empty the interrupt counts as unchanged.
	Digest string
	// Start says that its job must be started: the trigger is intended.
	Start bool
	// Checked says that the source can be asked and its job cancelled.
	Checked bool
	// Local says that its job is a process of the machine that starts it: no other machine can ask
	// for it, or tell whether it was started.
	Local bool
	// NextCheck is when to ask first; zero means now.
	NextCheck time.Time
	// Request is what goes to a batch for it; nil if nothing does.
	Request *BatchRequest
}

// Trigger is the durable record of what would resume a rollout.
type Trigger struct {
	// These fields say what it belongs to. CommitSegment makes a trigger when a segment is
	// suspended, WaitForScores when an evaluator waits.
	ID             string
	RunID          string
	RolloutID      string
	EvaluationID   string
	EvaluationName string
	Agent          string
	Epoch          int
	InterruptID    string
	// EvaluatorID is the evaluator that waits; empty if it is the agent.
	EvaluatorID string
	// Occurrence counts from 0 how often the interrupt id came again, or how often the evaluator has
	// waited.
	Occurrence int
	// Sibling counts from 0 the triggers of one interrupt.
	Sibling int
	// AskedBy is the trigger whose job asks, if this is a question. Its InterruptID is the same id
	// then, and Occurrence counts the questions of that job.
	AskedBy string
	// These fields say what is waited for. They are copied from the NewTrigger.
	Type   string
	Name   string
	Source string
	// ItemKey is replaced by TriggerStarted if the job got its key only then.
	ItemKey    string
	FolderPath string
	FolderKey  string
	Spec       json.RawMessage
	// State is changed by ClaimTriggers and by what ends a claim, by Deliver, by Cancel, and by
	// CommitSegment, which consumes, abandons and supersedes.
	State TriggerState
	// Segment is the segment whose end made the trigger; for an evaluator's, the last one.
	Segment int
	// TakenBy is the segment that Claim resumed with it; 0 means none. An evaluator takes in no
	// segment.
	TakenBy int
	// Machine is the name of the machine that alone can ask for its job, because the job is a process
	// there; empty if any can. ClaimTriggers sets it when the job is to be started.
	Machine string
	// CreatedAt is set by CommitSegment.
	CreatedAt time.Time
	// StartedAt is set by TriggerStarted, and of a question by QuestionTold.
	StartedAt time.Time
	// Deadline is when the suspension times out; zero means never. CommitSegment sets it.
	Deadline time.Time
	// NextDue is when the trigger can be claimed next: for its next check, at its deadline, or when
	// a claim on it ends; zero means never. Every method that changes a trigger sets it.
	NextDue time.Time
	// OverdueSince is when ClaimTriggers first gave out the trigger after its deadline.
	OverdueSince time.Time
	// Checks counts the checks at the source, and Attempts the attempts to start the job.
	// ClaimTriggers counts both.
	Checks   int
	Attempts int
	// Failures counts the calls of the source that TriggerFailed recorded since the last one that
	// did not fail. LastError is the error of the last call; empty if it did not fail.
	Failures  int
	LastError string
	// CheckedAt is when the source was last asked, whether or not it could be; zero means never.
	// TriggerPending and TriggerFailed set it, and Deliver where the source has brought the delivery.
	CheckedAt time.Time
	// These fields say what arrived. Deliver sets them with the delivery that it accepts;
	// CommitSegment and TriggerStarted do so with one that was parked.
	DeliveredAt time.Time
	Status      Status
	Payload     json.RawMessage
	Fault       *fault.Fault
	// DeliveredBy and Person are Delivery.By and Delivery.Person of it.
	DeliveredBy string
	Person      string
}

// ShownID is the id of the interrupt as it may be shown. The spec has one of its own where the id
// has a secret in it: the agent needs the id as it was.
func (t *Trigger) ShownID() string {
	var spec struct {
		ShownID string `json:"shownId"`
	}
	if bytes.Contains(t.Spec, []byte(`"shownId"`)) && json.Unmarshal(t.Spec, &spec) == nil && spec.ShownID != "" {
		return spec.ShownID
	}
	return t.InterruptID
}

// TriggerToken says that its bearer had claimed the trigger.
type TriggerToken struct {
	TriggerID string
	// Fence grows with each claim of the trigger, and when it is delivered or given up.
	Fence int64
}

// TriggerFailure is a call of a source that failed.
type TriggerFailure struct {
	Error string
	// NotStarted says that the job was certainly not started, by this claim or before: it is
	// intended again.
	NotStarted bool
	// NotTried says that this process has not asked, or has broken it off itself. That says nothing
	// of the source: neither Error nor a failure is recorded, and with NotStarted no attempt either.
	NotTried bool
}

// Action is what a claimed trigger needs.
type Action string

// The actions.
const (
	// ActionStart starts its job. The intent has been recorded.
	ActionStart Action = "start"
	// ActionResolve finds out whether its job was started. Once OverdueSince is set it must not be
	// started any more.
	ActionResolve Action = "resolve"
	// ActionCheck asks its source.
	ActionCheck Action = "check"
	// ActionExpire lets it expire, because its deadline has passed. If its job was started its
	// source is asked once more before that.
	ActionExpire Action = "expire"
	// ActionCancel tries once to cancel its job.
	ActionCancel Action = "cancel"
)

// TriggerClaim is a trigger that this process may now act on.
type TriggerClaim struct {
	TriggerToken
	Trigger
	Action Action
	// Elsewhere says that the job belongs to another machine, Trigger.Machine. Such a trigger is given
	// out only after its deadline, to expire.
	Elsewhere bool
	// Until is when the claim runs out unless it is renewed. Nothing that another process must not
	// do again may begin later.
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

// Delivery is a payload handed in for a trigger, addressed by the trigger's id or by source and
// item key.
type Delivery struct {
	TriggerID string
	Source    string
	ItemKey   string
	Status    Status
	Payload   json.RawMessage
	Fault     *fault.Fault
	// By says who delivered it: "deliver", "approve", "source", …
	By string
	// Person is the name of the person who answered, empty if it is not known or there is none.
	Person string
	// Fence, if not zero, is that of the claim under which the source was asked: the delivery of a
	// process whose claim has been taken over is refused with ErrFenced. Without it somebody else
	// than the source delivers: that is late after the deadline, and in time it takes the place of
	// the job, which is cancelled.
	Fence int64
	// ByJob says that the job itself delivers, without having been asked. That is late after the
	// deadline, too, but the job is left alone: it may have more to do.
	ByJob bool
}

// MaxKept is how many deliveries for a trigger are kept that were not accepted. The payloads of
// duplicates, and of the late ones but the first, are kept up to MaxKeptPayload bytes; an object
// with the size and digest takes the place of a larger one.
const (
	MaxKept        = 20
	MaxKeptPayload = 4 << 10
)

// Delivered is a delivery as the store keeps it.
type Delivered struct {
	Delivery
	// ReceivedAt is when Deliver took it.
	ReceivedAt time.Time
	// Disposition is set by Deliver. A parked delivery gets another one when its trigger is made.
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
	// Accepted are all the triggers that have accepted it. Several may wait for one source and item
	// key.
	Accepted []Trigger
}
