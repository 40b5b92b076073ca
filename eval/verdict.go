package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

// undelivered says why something that an evaluator has waited for did not come; nil if everything
// is there.
func undelivered(deliveries map[string]Delivery) error {
	for _, id := range slices.Sorted(maps.Keys(deliveries)) {
		d := deliveries[id]
		switch {
		case d.Error != nil && d.Error.Category == string(JudgeExpired):
			return &JudgeError{JudgeExpired, d.Error.Message}
		case d.Error != nil:
			return fmt.Errorf("%s: %s", d.Error.Category, d.Error.Message)
		case d.Status != delivered:
			return fmt.Errorf("what the evaluator waited for was %s", d.Status)
		}
	}
	return nil
}

// delivered is the status of a delivery that brings what was waited for.
const delivered = "successful"

// DeliveryError is why something that was waited for did not come.
type DeliveryError struct {
	Category string `json:"category"`
	Message  string `json:"message"`
}
