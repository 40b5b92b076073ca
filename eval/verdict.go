package eval

import (
	"context"
	"encoding/json"
	"time"
)

// Evaluator scores finished rollouts. It is safe for concurrent use.
type Evaluator interface {
	// Evaluate gives this evaluator's verdict on one rollout. The context ends a command evaluator.
	Evaluate(ctx context.Context, s Subject) Verdict
	// Resume goes on where a verdict has asked to wait. The deliveries are what arrived, by the ids
	// of the interrupts in Verdict.Wait; each of them has one. The process that evaluated before
	// may have ended long ago, so that everything else is in the subject.
	Resume(ctx context.Context, s Subject, deliveries map[string]Delivery) Verdict
}

// Verdict is what an evaluator says of a rollout: its results, or what it waits for before it can
// say more.
type Verdict struct {
	// Results are empty if the evaluation has no criteria entry for the evaluator. Otherwise there
	// is one; a line-by-line evaluator gives one for each line (Result.Line) and the aggregate
	// last. What goes wrong is in Result.Error.
	Results []Result
	// Wait, if not nil, is what the evaluator waits for: interrupts in any shape that an agent may
	// write as its __interrupt__. There are no results then.
	Wait json.RawMessage
	// Later says that the answers of [Subject.Judge] to some of its questions come later. There are
	// no results then either.
	Later bool
}

// Delivery is what arrived for something that an evaluator waits for.
type Delivery struct {
	TriggerID string `json:"triggerId"`
	// Status is successful, faulted, cancelled or expired.
	Status string `json:"status"`
	// Payload is null unless the delivery is successful.
	Payload json.RawMessage `json:"payload"`
	// Error says why a delivery is not successful; nil if it is.
	Error      *DeliveryError `json:"error"`
	ReceivedAt time.Time      `json:"receivedAt"`
}

// DeliveryError is why something that was waited for did not come.
type DeliveryError struct {
	Category string `json:"category"`
	Message  string `json:"message"`
}

// Subject is what an evaluator sees of one finished rollout.
type Subject struct {
	Evaluation Evaluation
	RolloutID  string
	Agent      string
	Epoch      int
	// Output is the agent's output, a JSON value.
	Output json.RawMessage
	// Trace holds the spans of each segment, one OpenTelemetry span a line, as the agent wrote them
	// (see spans.ToolCalls).
	Trace [][]json.RawMessage
	// Dir is the eval set's folder and Workspace the rollout's, absolute.
	Dir       string
	Workspace string
	// Env is the environment of a command evaluator.
	Env []string
	// Judge asks models; nil if there is none to ask.
	Judge Judge
	// Results are what other evaluators have said before, for people who may see it.
	Results []Result
}
