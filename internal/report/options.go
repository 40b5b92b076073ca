package report

import (
	"fmt"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// Options are the inputs of a report besides a view of the run.
type Options struct {
	// StoreID and StoreDir are those of the view's store. StorePath is the path of the store in the
	// document.
	StoreID   string
	StoreDir  string
	StorePath string
	// Plan is the run's.
	Plan plans.Plan
	// Redact takes secrets out of what agents, evaluators and triggers said.
	Redact *redact.Redactor

	rescorings plans.Rescorings
}

func (o Options) redactedKeys(values map[string]float64) map[string]float64 {
	if values == nil {
		return nil
	}
	out := make(map[string]float64, len(values))
	for name, value := range values {
		out[o.Redact.String(name)] = value
	}
	return out
}

// redacted takes secrets out of each of several texts.
func (o Options) redacted(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, o.Redact.String(text))
	}
	return out
}

// ownerOf says who is to blame for a fault: the owner that the eval set gives its category, else
// the usual one.
func ownerOf(set *eval.Set, category fault.Category) fault.Owner {
	if owner, ok := set.Faults[string(category)]; ok {
		return fault.Owner(owner)
	}
	return category.Owner()
}

// result is a result that is shown of a rollout, with the number of its rescoring.
type result struct {
	eval.Result
	rescoring int
}

// readResults reads the results of a completed rollout, and the known ones of a rollout that waits
// for a score. Results of a rollout that is still being evaluated are not shown.
func readResults(rv store.RolloutView) (all []result, err error) {
	if rv.State != eval.StateCompleted && rv.State != eval.StateScoring {
		return nil, nil
	}
	for _, r := range rv.Results {
		var results []eval.Result
		if err := jsonv1.Unmarshal(r.Data, &results); err != nil {
			return nil, fmt.Errorf("rollout %s (%s): the stored result of evaluator %s: %w",
				rv.ID, rv.EvaluationName, r.EvaluatorID, err)
		}
		for _, one := range results {
			all = append(all, result{one, r.Rescoring})
		}
	}
	return all, nil
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
