package runner

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/internal/store"
)

// Rating is a person's opinion on a rollout.
type Rating struct {
	// Value is a score from 0 to 1, pass or fail, or a label, as the evaluator asks for it.
	Value string
	// Reason explains the value, and Rater names the person; both may be empty.
	Reason, Rater string
}

// Rate answers for a trigger of an evaluator that asks people. The trigger is named as for Deliver.
// A rating that the evaluator does not accept is an [InputError], and the trigger waits as before.
func (s *Store) Rate(ctx context.Context, name string, r Rating) (Receipt, error) {
	t, err := s.st.Trigger(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return Receipt{}, inputError("%w; evalrun triggers lists them", err)
	}
	if err != nil {
		return Receipt{}, err
	}
	def, ok, err := evaluatorOf(ctx, s.st, t)
	if err != nil {
		return Receipt{}, err
	}
	if !ok || def.Type != judged.TypeHuman {
		return Receipt{}, inputError("trigger %s waits for %s, and not for a rating; evalrun deliver, approve and deny answer it",
			t.ID, t.Type)
	}
	payload, err := judged.NewAnswer(def, r.Value, r.Reason, r.Rater)
	if err != nil {
		return Receipt{}, wrongAnswer(t, err)
	}
	return s.Deliver(ctx, t.ID, Delivery{Payload: payload, By: "rate", Person: r.Rater})
}

// checkAnswer refuses a delivery that the waiting evaluator does not accept. A delivery that comes
// before its trigger is checked by the evaluator itself.
func checkAnswer(ctx context.Context, st store.Reader, d store.Delivery) error {
	id := d.TriggerID
	if id == "" { // the keys of tasks for people end with the trigger's id
		if id = d.ItemKey; strings.Count(id, "-") > 4 {
			_, id, _ = strings.Cut(id, "-")
		}
	}
	t, err := st.Trigger(ctx, id)
	if err != nil || d.TriggerID == "" && t.ItemKey != d.ItemKey {
		return nil //nolint:nilerr // it is parked, or for something that was not made for a person
	}
	def, ok, err := evaluatorOf(ctx, st, t)
	if err != nil || !ok {
		return err
	}
	if err := judged.CheckAnswer(def, d.Payload); err != nil {
		return wrongAnswer(t, err)
	}
	return nil
}

func wrongAnswer(t store.Trigger, err error) error {
	return inputError("trigger %s still waits: the evaluator %s does not take the answer: %w", t.ID, t.EvaluatorID, err)
}

// evaluatorOf returns the evaluator that waits for a trigger, if there is one.
func evaluatorOf(ctx context.Context, st store.Reader, t store.Trigger) (def eval.Definition, ok bool, err error) {
	if t.EvaluatorID == "" {
		return def, false, nil
	}
	plan, err := readPlan(ctx, st, t.RunID)
	if err != nil {
		return def, false, err
	}
	i := slices.IndexFunc(plan.Set.Evaluators, func(def eval.Definition) bool { return def.ID == t.EvaluatorID })
	if i < 0 {
		return def, false, nil
	}
	return plan.Set.Evaluators[i], true, nil
}
