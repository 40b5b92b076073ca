package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// hasAnswer is the condition that the job of a trigger asks something and has not been told the
// answer that is there.
const hasAnswer = "EXISTS (SELECT 1 FROM triggers q WHERE q.asked_by = triggers.trigger_id AND q.asked_by <> '' AND " +
	untold + ")"

const (
	untold = "q.state IN ('fired', 'faulted', 'cancelled') AND q.started_at IS NULL"
	// whereAsked selects the questions of a trigger that have not ended.
	whereAsked = "WHERE t.asked_by = ? AND t.asked_by <> '' AND t.state IN ('waiting', 'fired', 'faulted', 'cancelled') ORDER BY t.id"
)

// ask makes a question of the job of a trigger.
func (rows triggerRows) ask(by store.Trigger, n store.NewTrigger) error {
	var last struct {
		state, digest string
		told          bool
	}
	asked := 0
	if err := rows.tx.rows(func(r scanner) error {
		asked++
		return r.Scan(&last.state, &last.digest, &last.told)
	}, "SELECT state, digest, started_at IS NOT NULL FROM triggers WHERE asked_by = ? AND asked_by <> '' ORDER BY id",
		by.ID); err != nil {
		return err
	}
	switch store.TriggerState(last.state) {
	case store.TriggerWaiting:
		if last.digest == n.Digest {
			return nil
		}
	case store.TriggerFired, store.TriggerFaulted, store.TriggerCancelled:
		if !last.told {
			return nil
		}
	}
	if err := rows.endQuestions(by.ID); err != nil {
		return err
	}
	id := store.TriggerID(by.RolloutID, by.ID, asked, 0)
	key := n.ItemKey
	if key == "" {
		key = n.KeyPrefix + id
	}
	if err := rows.tx.Exec(
		`INSERT INTO triggers (trigger_id, run_id, rollout_id, asked_by, interrupt_id, occurrence, sibling, type, name, source, item_key,
			folder_path, folder_key, spec, digest, state, checked, segment, created_at, deadline, evaluator_id)
		SELECT ?1, run_id, rollout_id, trigger_id, trigger_id, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'waiting', FALSE, segment, ?11, deadline, evaluator_id FROM triggers WHERE trigger_id = ?12`,
		id, asked, n.Type, n.Name, n.Source, key, n.FolderPath, n.FolderKey, document(n.Spec), n.Digest, rows.tx.now,
		by.ID); err != nil {
		return err
	}
	data := map[string]any{"triggerId": id, "askedBy": by.ID, "type": n.Type, "source": n.Source, "itemKey": key}
	if !by.Deadline.IsZero() {
		data["deadline"] = by.Deadline
	}
	return rows.tx.event(by.RunID, by.RolloutID, store.QuestionAsked, data)
}

// answered makes the trigger of a job due, so that the job is told an answer. If the trigger is
// being checked at this moment, the end of its claim does that.
func (rows triggerRows) answered(triggerID string) error {
	rows.tx.wake = true
	return rows.tx.Exec(
		"UPDATE triggers SET due_at = ? WHERE trigger_id = ? AND state = 'waiting' AND owner IS NULL", rows.tx.now, triggerID)
}

// endQuestions ends the questions of a trigger.
func (rows triggerRows) endQuestions(triggerID string) error {
	return rows.tx.Exec(`UPDATE triggers SET state = CASE state WHEN 'waiting' THEN 'superseded' ELSE 'consumed' END
		WHERE asked_by = ? AND asked_by <> '' AND state IN ('waiting', 'fired', 'faulted', 'cancelled')`, triggerID)
}

// questions implements store.Questions.
type questions struct{ db *db }

// Ask implements Questions.
func (s questions) Ask(ctx context.Context, tok store.TriggerToken, n store.NewTrigger, next time.Duration) error {
	return s.db.writeOp(ctx, "ask the question of trigger "+tok.TriggerID, func(w *write) error {
		if _, err := w.triggers.release(tok, claimEnd{next: next}); err != nil {
			return err
		}
		found, err := w.triggers.list("WHERE t.trigger_id = ?", tok.TriggerID)
		if err != nil || len(found) == 0 || !found[0].State.IsOpen() {
			return err // somebody else has ended the wait
		}
		return w.triggers.ask(found[0], n)
	})
}

// Questions implements Questions.
func (s questions) Questions(ctx context.Context, triggerID string) (out []store.Trigger, err error) {
	rows, err := s.db.read.QueryContext(ctx, selectTrigger+whereAsked, triggerID)
	if err != nil {
		return nil, s.db.describe(err, "read the questions of trigger", triggerID)
	}
	err = each(rows, func(r scanner) error {
		g, err := scanTrigger(r)
		out = append(out, g)
		return err
	})
	return out, s.db.describe(err, "read the questions of trigger", triggerID)
}

// QuestionTold implements Questions.
func (s questions) QuestionTold(ctx context.Context, questionID string) error {
	return s.db.writeOp(ctx, "record the answer to question "+questionID, func(w *write) error {
		var runID string
		if err := w.tx.Row([]any{&runID},
			`UPDATE triggers SET started_at = ? WHERE trigger_id = ? AND asked_by <> '' RETURNING run_id`,
			w.tx.now, questionID); err != nil {
			return fmt.Errorf("question %s: %w", questionID, err)
		}
		return w.tx.touch(runID)
	})
}

// EndQuestions implements Questions.
func (s questions) EndQuestions(ctx context.Context, triggerID string) error {
	return s.db.writeOp(ctx, "end the questions of trigger "+triggerID, func(w *write) error {
		found, err := w.triggers.list(whereAsked, triggerID)
		if err != nil || len(found) == 0 {
			return err
		}
		if err := w.triggers.endQuestions(triggerID); err != nil {
			return err
		}
		return w.tx.touch(found[0].RunID)
	})
}
