package eval

import "slices"

// State is where a rollout is in its life, in the words of the results document.
type State string

// The states of a rollout.
const (
	StatePending    State = "pending"
	StateRunning    State = "running"
	StateSuspended  State = "suspended"
	StateEvaluating State = "evaluating"
	// StateScoring means that the rollout's agent has finished, and that one of its evaluators waits.
	StateScoring   State = "scoring"
	StateCompleted State = "completed"
	StateFaulted   State = "faulted"
	StateCancelled State = "cancelled"
)

// States are the states in the order in which a rollout meets them.
var States = []State{
	StatePending, StateRunning, StateSuspended, StateEvaluating, StateScoring, StateCompleted, StateFaulted,
	StateCancelled,
}

// transitions is every change of a rollout's state. Nothing follows the terminal states.
var transitions = map[State][]State{
	StatePending:    {StateRunning, StateFaulted, StateCancelled},
	StateRunning:    {StateRunning, StatePending, StateSuspended, StateEvaluating, StateFaulted, StateCancelled},
	StateSuspended:  {StateRunning, StateFaulted, StateCancelled},
	StateEvaluating: {StateEvaluating, StateScoring, StateCompleted, StateFaulted, StateCancelled},
	StateScoring:    {StateEvaluating, StateCancelled}, // the agent has finished: never back to running
}

// IsTerminal reports whether a rollout in this state never changes again.
func (s State) IsTerminal() bool {
	return s == StateCompleted || s == StateFaulted || s == StateCancelled
}

// CanBecome reports whether a rollout's state ever changes from s to t.
func (s State) CanBecome(t State) bool { return slices.Contains(transitions[s], t) }
