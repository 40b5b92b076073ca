package store

// State is the state of a rollout.
type State string

// The states of a rollout; docs/rollout.md has the diagram.
const (
	StatePending    State = "pending"
	StateRunning    State = "running"
	StateSuspended  State = "suspended"
	StateEvaluating State = "evaluating"
	StateCompleted  State = "completed"
	StateFaulted    State = "faulted"
	StateCancelled  State = "cancelled"
)

// States are the states in the order in which a rollout meets them.
var States = []State{StatePending, StateRunning, StateSuspended, StateEvaluating, StateCompleted, StateFaulted, StateCancelled}

// transitions is every change of a rollout's state that the store makes.
var transitions = map[State][]State{
	StatePending:    {StateRunning, StateFaulted, StateCancelled},
	StateRunning:    {StateRunning, StatePending, StateSuspended, StateEvaluating, StateFaulted, StateCancelled},
	StateSuspended:  {StateRunning, StateFaulted, StateCancelled},
	StateEvaluating: {StateEvaluating, StateCompleted, StateFaulted, StateCancelled},
}

// IsTerminal reports whether a rollout in this state never changes again.
func (s State) IsTerminal() bool {
	return s == StateCompleted || s == StateFaulted || s == StateCancelled
}

// CanBecome reports whether the store ever changes a rollout's state from s to t.
func (s State) CanBecome(t State) bool {
	for _, next := range transitions[s] {
		if next == t {
			return true
		}
	}
	return false
}

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
