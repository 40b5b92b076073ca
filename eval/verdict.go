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
	// Resume continues after a verdict that asked to wait. The deliveries are those that arrived, by
	// the ids of the interrupts in Verdict.Wait; each of them has one. The process that evaluated
	// before may have ended long ago, so that everything else is in the subject.
	Resume(ctx context.Context, s Subject, deliveries map[string]Delivery) Verdict
}

// Verdict is the answer of an evaluator about a rollout: its results, or something that it waits
// for before it can say more.
type Verdict struct {
	// Results are empty if the evaluation has no criteria entry for the evaluator. Otherwise there is
	// one; a line-by-line evaluator gives one for each line (Result.Line) and the aggregate last.
	// Errors are in Result.Error.
	Results []Result
	// Wait, if not nil, holds the interrupts that the evaluator waits for, in any shape that an agent
	// may write as its __interrupt__. There are no results then.
	Wait json.RawMessage
	// Later says that the answers of [Subject.Judge] to some of its questions come later. There are
	// no results then either.
	Later bool
}

// Delivery is the outcome of something that an evaluator waited for.
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

// DeliveryError says why something that was waited for did not come.
type DeliveryError struct {
	Category string `json:"category"`
	Message  string `json:"message"`
}

// Subject is one finished rollout as an evaluator sees it.
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
	// Working is the working time of the rollout, and Usage its use of models with its cost, if an
	// evaluator of type [TypeChecks] may ask for them.
	Working time.Duration
	Usage   []Usage
	// Dir is the eval set's folder, Workspace the rollout's; both are absolute.
	Dir       string
	Workspace string
	// Env is the environment of a command evaluator.
	Env []string
	// Judge asks models; nil if there is none to ask.
	Judge Judge
	// Python runs evaluators that are written in Python; nil if nothing does.
	Python Python
	// Results are the earlier results of other evaluators, for people who may see them.
	Results []Result
}
