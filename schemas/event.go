package schemas

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is one line of events.jsonl, or of the file of --events.
type Event struct {
	// Seq grows by one with each event of a run.
	Seq   int64     `json:"seq"`
	Time  time.Time `json:"time"`
	Type  EventType `json:"type"`
	RunID string    `json:"runId"`
	// RolloutID is empty for an event of the run as a whole.
	RolloutID string `json:"rolloutId,omitempty"`
	// Data has the type that belongs to Type; [Event.Decode] reads it.
	Data json.RawMessage `json:"data"`
}

// EventType says what has happened, and so which type the data has.
type EventType string

// The types of events.
const (
	EventRunCreated       EventType = "run.created"       // RunCreated
	EventRolloutStarted   EventType = "rollout.started"   // RolloutStarted
	EventRolloutSuspended EventType = "rollout.suspended" // RolloutSuspended
	EventTriggerDelivered EventType = "trigger.delivered" // TriggerDelivered
	EventQuestionAsked    EventType = "question.asked"    // QuestionAsked
	EventRolloutResumed   EventType = "rollout.resumed"   // RolloutResumed
	EventRolloutRetried   EventType = "rollout.retried"   // RolloutRetried
	EventRolloutScoring   EventType = "rollout.scoring"   // RolloutScoring
	EventRolloutEvaluated EventType = "rollout.evaluated" // RolloutEvaluated
	EventRolloutFinished  EventType = "rollout.finished"  // RolloutFinished
	EventRunFinished      EventType = "run.finished"      // RunFinished
	EventRunRescored      EventType = "run.rescored"      // RunRescored
)

// Decode reads the data of the event into a value of the type that belongs to its Type, such as a
// *RolloutFinished.
func (e Event) Decode() (any, error) {
	data := newData(e.Type)
	if data == nil {
		return nil, fmt.Errorf("event %d of run %s has the unknown type %q", e.Seq, e.RunID, e.Type)
	}
	if err := json.Unmarshal(e.Data, data); err != nil {
		return nil, fmt.Errorf("event %d of run %s (%s): %w", e.Seq, e.RunID, e.Type, err)
	}
	return data, nil
}

func newData(t EventType) any {
	switch t {
	case EventRunCreated:
		return new(RunCreated)
	case EventRolloutStarted:
		return new(RolloutStarted)
	case EventRolloutSuspended:
		return new(RolloutSuspended)
	case EventTriggerDelivered:
		return new(TriggerDelivered)
	case EventQuestionAsked:
		return new(QuestionAsked)
	case EventRolloutResumed:
		return new(RolloutResumed)
	case EventRolloutRetried:
		return new(RolloutRetried)
	case EventRolloutScoring:
		return new(RolloutScoring)
	case EventRolloutEvaluated:
		return new(RolloutEvaluated)
	case EventRolloutFinished:
		return new(RolloutFinished)
	case EventRunFinished:
		return new(RunFinished)
	case EventRunRescored:
		return new(RunRescored)
	}
	return nil
}

// RunCreated says that a run was planned.
type RunCreated struct {
	Name              string `json:"name"`
	EvaluationSetID   string `json:"evaluationSetId"`
	EvaluationSetName string `json:"evaluationSetName"`
	// Total is the number of planned rollouts.
	Total int `json:"total"`
}

// RolloutStarted says that the first segment of a rollout began.
type RolloutStarted struct {
	Segment        int    `json:"segment"`
	Attempt        int    `json:"attempt"`
	EvaluationID   string `json:"evaluationId"`
	EvaluationName string `json:"evaluationName"`
	Agent          string `json:"agent"`
	Epoch          int    `json:"epoch"`
}

// RolloutSuspended says that a segment ended and its rollout waits.
type RolloutSuspended struct {
	Segment  int              `json:"segment"`
	Triggers []SuspendTrigger `json:"triggers"`
}

// RolloutScoring says that the agent of a rollout has finished, and that its evaluators wait.
type RolloutScoring struct {
	Triggers []ScoringTrigger `json:"triggers"`
}

// ScoringTrigger is something that an evaluator waits for.
type ScoringTrigger struct {
	TriggerID   string     `json:"triggerId"`
	EvaluatorID string     `json:"evaluatorId"`
	InterruptID string     `json:"interruptId"`
	Type        string     `json:"type"`
	Source      string     `json:"source"`
	ItemKey     string     `json:"itemKey"`
	Deadline    *time.Time `json:"deadline,omitempty"`
}

// SuspendTrigger is something that a rollout waits for.
type SuspendTrigger struct {
	TriggerID   string     `json:"triggerId"`
	InterruptID string     `json:"interruptId"`
	Type        string     `json:"type"`
	Source      string     `json:"source"`
	ItemKey     string     `json:"itemKey"`
	Deadline    *time.Time `json:"deadline,omitempty"`
}

// TriggerDelivered says that a delivery has arrived for a trigger of a rollout.
type TriggerDelivered struct {
	TriggerID   string `json:"triggerId"`
	InterruptID string `json:"interruptId"`
	// EvaluatorID is the evaluator that has waited; empty if it was the agent.
	EvaluatorID string `json:"evaluatorId,omitempty"`
	// Status is successful, faulted, cancelled or expired.
	Status string `json:"status"`
	// By says what delivered it, Person who answered, if that is known.
	By     string `json:"by"`
	Person string `json:"person,omitempty"`
}

// QuestionAsked says that a job which a rollout waits for asks a person something. The rollout goes
// on waiting for the job.
type QuestionAsked struct {
	TriggerID string `json:"triggerId"`
	// AskedBy is the trigger that waits for the job.
	AskedBy  string     `json:"askedBy"`
	Type     string     `json:"type"`
	Source   string     `json:"source"`
	ItemKey  string     `json:"itemKey"`
	Deadline *time.Time `json:"deadline,omitempty"`
}

// RolloutResumed says that a segment began with the deliveries that had arrived.
type RolloutResumed struct {
	Segment    int      `json:"segment"`
	Attempt    int      `json:"attempt"`
	TriggerIDs []string `json:"triggerIds"`
}

// RolloutRetried says that a segment failed and will be repeated.
type RolloutRetried struct {
	Segment int `json:"segment"`
	// Attempt is the number of the next attempt, AfterMs the time until then.
	Attempt int   `json:"attempt"`
	AfterMs int64 `json:"afterMs,omitempty"`
	// Fault is nil if evalrun itself was interrupted.
	Fault *Fault `json:"fault,omitempty"`
}

// RolloutEvaluated says that all evaluators have scored a rollout.
type RolloutEvaluated struct {
	Score *float64 `json:"score"`
}

// RolloutFinished says that a rollout has come to a terminal state. A rollout that was never
// started has no RolloutStarted, and so this event also says which rollout it is.
type RolloutFinished struct {
	State State    `json:"state"`
	Score *float64 `json:"score"`
	Fault *Fault   `json:"fault,omitempty"`

	EvaluationID   string `json:"evaluationId,omitempty"`
	EvaluationName string `json:"evaluationName,omitempty"`
	Agent          string `json:"agent,omitempty"`
	Epoch          int    `json:"epoch,omitempty"`
}

// RunFinished says that no rollout of a run can change any more. It has the number of rollouts by
// state.
type RunFinished struct {
	Completed int `json:"completed,omitempty"`
	Faulted   int `json:"faulted,omitempty"`
	Cancelled int `json:"cancelled,omitempty"`
}

// RunRescored says that the completed rollouts of a run were scored again. It is the only event that
// may come after RunFinished.
type RunRescored struct {
	// Number is the number of the rescoring.
	Number int `json:"number"`
	// Scored counts the rollouts with new results, NotScored those that were left as they were.
	Scored    int `json:"scored"`
	NotScored int `json:"notScored"`
}
