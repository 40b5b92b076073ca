package store

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
	TriggerConsumed   TriggerState = "consumed"   // the segment that took its payload has been committed
)

// IsOpen reports whether the trigger still waits for a delivery.
func (s TriggerState) IsOpen() bool {
	return s == TriggerIntended || s == TriggerStarting || s == TriggerWaiting
}

// Outcome is how an attempt of a segment ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeSuspended Outcome = "suspended"
	OutcomeFailed    Outcome = "failed"
	// OutcomeInterrupted is an attempt that evalrun broke off itself; it is repeated and does not count against retry.max.
	OutcomeInterrupted Outcome = "interrupted"
	OutcomeCancelled   Outcome = "cancelled"
)
