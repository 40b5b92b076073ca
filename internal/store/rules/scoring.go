package rules

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// scoring implements store.Scoring.
type scoring struct{ db *db }

// WaitForScores implements Scoring.
func (s scoring) WaitForScores(
	ctx context.Context, tok store.Token, wait store.ScoreWait,
) (done store.Committed, err error) {
	err = s.db.writeOp(ctx, "wait for the scores of rollout "+tok.RolloutID, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		w.tx.wake = true
		done, err = w.segments.waitForScores(o.Rollout, wait)
		return err
	})
	if err != nil {
		return store.Committed{}, err
	}
	return done, nil
}

// evaluatorsWait selects the triggers that the evaluators of the rollout ?1 wait for, or have not
// consumed yet.
const evaluatorsWait = "t.rollout_id = ?1 AND t.evaluator_id <> '' AND t.asked_by = '' AND t.state NOT IN ('consumed', 'superseded', 'abandoned')"

// waitForScores makes the triggers of the evaluators that wait. The mailbox is opened when all of
// them are there, as for a suspension.
func (s segments) waitForScores(o store.Rollout, wait store.ScoreWait) (store.Committed, error) {
	if err := s.rollouts.become(o.ID, eval.StateScoring,
		", owner = NULL, lease_until = NULL, scorings = scorings + 1, internal_failures = 0"); err != nil {
		return store.Committed{}, err
	}
	for _, r := range wait.Results {
		if err := s.rollouts.addResult(o, r); err != nil {
			return store.Committed{}, err
		}
	}
	added, err := s.addEvaluatorTriggers(o, wait)
	if err != nil {
		return store.Committed{}, err
	}
	triggers, err := s.triggers.list("WHERE "+evaluatorsWait+" ORDER BY t.id", o.ID)
	if err != nil {
		return store.Committed{}, err
	}
	if len(triggers) == 0 {
		return store.Committed{}, fmt.Errorf(
			"rollout %s cannot wait for its evaluators without a trigger: nothing would end that", o.ID)
	}
	if err := s.scoringEvent(o, triggers); err != nil {
		return store.Committed{}, err
	}
	for _, a := range added {
		if _, err := s.mail.openMailbox(a); err != nil {
			return store.Committed{}, err
		}
	}
	return s.mail.settleScoring(o.ID)
}

func (s segments) addEvaluatorTriggers(o store.Rollout, wait store.ScoreWait) (added []store.Trigger, err error) {
	occurrences, numbers, siblings := map[string]int{}, map[string]int{}, map[[2]string]int{}
	for _, n := range wait.Triggers {
		if n.EvaluatorID == "" {
			return nil, errors.New("an agent does not wait for scores")
		}
		occurrence, known := occurrences[n.EvaluatorID]
		if !known {
			if err := s.rollouts.consume(o.ID, n.EvaluatorID); err != nil {
				return nil, err
			}
			if err := s.tx.Row([]any{&occurrence},
				"SELECT coalesce(max(occurrence) + 1, 0) FROM triggers WHERE rollout_id = ? AND evaluator_id = ? AND asked_by = ''",
				o.ID, n.EvaluatorID); err != nil {
				return nil, err
			}
			occurrences[n.EvaluatorID] = occurrence
		}
		interrupt := [2]string{n.EvaluatorID, n.InterruptID}
		id := store.EvaluatorTriggerID(o.ID, n.EvaluatorID, occurrence, numbers[n.EvaluatorID])
		a, err := s.triggers.add(o, n, id, occurrence, siblings[interrupt])
		if err != nil {
			return nil, fmt.Errorf("evaluator %s: interrupt %q: %w", n.EvaluatorID, n.InterruptID, err)
		}
		if wait.Timeout > 0 {
			if err := s.tx.Exec(
				"UPDATE triggers SET deadline = ?1, due_at = min(coalesce(due_at, ?1), ?1) WHERE trigger_id = ?2",
				s.tx.after(wait.Timeout), id); err != nil {
				return nil, err
			}
		}
		if n.Request != nil {
			if err := (batchRows{tx: s.tx}).add(o.RunID, a.ID, *n.Request); err != nil {
				return nil, err
			}
		}
		added = append(added, a)
		numbers[n.EvaluatorID]++
		siblings[interrupt]++
	}
	return added, nil
}

func (s segments) scoringEvent(o store.Rollout, triggers []store.Trigger) error {
	list := []map[string]any{}
	for _, g := range triggers {
		item := map[string]any{
			"triggerId": g.ID, "evaluatorId": g.EvaluatorID, "interruptId": g.ShownID(), "type": g.Type, "source": g.Source,
			"itemKey": g.ItemKey,
		}
		if !g.Deadline.IsZero() {
			item["deadline"] = g.Deadline
		}
		list = append(list, item)
	}
	return s.tx.event(o.RunID, o.ID, store.RolloutScoring, map[string]any{"triggers": list})
}

// settleScoring lets a rollout go on if everything has arrived for one of its evaluators: a
// payload, or that none will come. Neither is ever a fault of the rollout.
func (m mail) settleScoring(rolloutID string) (store.Committed, error) {
	var ready bool
	if err := m.tx.Row([]any{&ready}, `SELECT EXISTS (SELECT 1 FROM triggers t WHERE `+evaluatorsWait+`
		GROUP BY evaluator_id HAVING count(CASE WHEN state IN ('intended', 'starting', 'waiting') THEN 1 END) = 0)`,
		rolloutID); err != nil || !ready {
		return store.Committed{State: eval.StateScoring}, err
	}
	m.tx.wake = true
	return store.Committed{State: eval.StateScoring, Ready: true},
		m.tx.Exec("UPDATE rollouts SET runnable_at = coalesce(runnable_at, ?) WHERE rollout_id = ?",
			m.tx.now, rolloutID)
}

// claimWaiting adds to a claim what has arrived for the evaluators, and which of them wait for
// more.
func (s segments) claimWaiting(c *store.Claim) error {
	triggers, err := s.triggers.list("WHERE "+evaluatorsWait+" ORDER BY t.id", c.RolloutID)
	if err != nil {
		return err
	}
	waits := map[string]bool{}
	for _, g := range triggers {
		if g.State.IsOpen() && !waits[g.EvaluatorID] {
			waits[g.EvaluatorID] = true
			c.Waiting = append(c.Waiting, g.EvaluatorID)
		}
	}
	for _, g := range triggers {
		if !waits[g.EvaluatorID] {
			c.Deliveries = append(c.Deliveries, g)
		}
	}
	return nil
}

// stopWaiting gives up what the evaluators of a rollout that ends have waited for.
func (s segments) stopWaiting(o store.Rollout) error {
	if o.Scorings == 0 {
		return nil
	}
	left, err := s.triggers.list("WHERE "+evaluatorsWait+" ORDER BY t.id", o.ID)
	if err != nil {
		return err
	}
	for _, g := range left {
		if err := s.triggers.giveUp(g.ID, store.TriggerAbandoned); err != nil {
			return err
		}
	}
	return nil
}
