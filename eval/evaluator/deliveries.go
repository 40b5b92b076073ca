package evaluator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/eval"
)

// Undelivered says why something that an evaluator has waited for did not come; nil if everything
// came.
func Undelivered(deliveries map[string]eval.Delivery) error {
	for _, id := range slices.Sorted(maps.Keys(deliveries)) {
		d := deliveries[id]
		switch {
		case d.Error != nil && d.Error.Category == string(eval.JudgeExpired):
			return &eval.JudgeError{Category: eval.JudgeExpired, Message: d.Error.Message}
		case d.Error != nil:
			return fmt.Errorf("%s: %s", d.Error.Category, d.Error.Message)
		case d.Status != delivered:
			return fmt.Errorf("what the evaluator waited for was %s", d.Status)
		}
	}
	return nil
}

// delivered is the status of a successful delivery.
const delivered = "successful"
