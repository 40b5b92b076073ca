package rules

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
)

// mail brings deliveries and triggers together, whichever comes first, and lets rollouts go on.
type mail struct {
	tx       *Tx
	rollouts rolloutRows
	triggers triggerRows
}

// delivered has the state of a trigger after a delivery, by the status of the delivery.
var delivered = map[store.Status]store.TriggerState{
	store.StatusSuccessful: store.TriggerFired,
	store.StatusFaulted:    store.TriggerFaulted,
	store.StatusCancelled:  store.TriggerCancelled,
	store.StatusExpired:    store.TriggerExpired,
}

// incoming is a delivery that the store is taking. receivedAt is when it came. parked is its row if
// it was parked before, and byKey says that this row is for every trigger with its source and item
// key.
type incoming struct {
	store.Delivery
	receivedAt int64
	parked     int64
	byKey      bool
}

const deliveryColumns = "id, trigger_id = '', source, item_key, status, payload, fault, delivered_by, person, received_at, disposition"

func scanDelivery(r scanner) (a incoming, as store.Disposition, err error) {
	var fault []byte
	if err := r.Scan(&a.parked, &a.byKey, &a.Source, &a.ItemKey, &a.Status, (*[]byte)(&a.Payload), &fault,
		&a.By, &a.Person, &a.receivedAt, &as); err != nil {
		return a, as, err
	}
	a.Fault, err = unmarshalFault(fault)
	return a, as, err
}

// take takes a delivery: it parks it, or gives it to its triggers and settles their rollouts.
func (m mail) take(d store.Delivery) (store.Receipt, error) {
	a := incoming{Delivery: d, receivedAt: m.tx.now}
	found, err := m.findTriggers(d)
	if err != nil {
		return store.Receipt{}, err
	}
	if len(found) == 0 {
		return store.Receipt{Disposition: store.Parked}, m.park(a)
	}
	receipt, err := m.deliverAll(found, a)
	if err != nil {
		return store.Receipt{}, err
	}
	settled := map[string]bool{}
	for _, g := range receipt.Accepted {
		if !settled[g.RolloutID] {
			settled[g.RolloutID] = true
			if err := m.settleDelivered(g); err != nil {
				return store.Receipt{}, err
			}
		}
	}
	return receipt, nil
}

// findTriggers finds the triggers of a delivery. That is the one with its id, or all that still
// wait for its source and item key. If none waits, it is the newest of those that did.
func (m mail) findTriggers(d store.Delivery) ([]store.Trigger, error) {
	if d.TriggerID != "" {
		return m.triggers.list("WHERE t.trigger_id = ?", d.TriggerID)
	}
	found, err := m.triggers.list(
		"WHERE t.item_key = ? AND t.source = ? AND t.state IN ('intended', 'starting', 'waiting') ORDER BY t.id",
		d.ItemKey, d.Source)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return m.triggers.list("WHERE t.item_key = ? AND t.source = ? ORDER BY t.id DESC LIMIT 1", d.ItemKey, d.Source)
}

// deliverAll records a delivery for several triggers. The receipt is that of the first trigger that
// accepted it, or else of the first trigger.
func (m mail) deliverAll(found []store.Trigger, a incoming) (receipt store.Receipt, err error) {
	for i, g := range found {
		if i > 0 { // its sibling may have had the delivery just now
			again, err := m.triggers.list("WHERE t.trigger_id = ?", g.ID)
			if err != nil {
				return store.Receipt{}, err
			}
			if !again[0].State.IsOpen() {
				continue
			}
		}
		disposition, err := m.deliver(g, a)
		if err != nil {
			return store.Receipt{}, err
		}
		if disposition == store.Accepted {
			receipt.Accepted = append(receipt.Accepted, g)
		}
		if i == 0 || disposition == store.Accepted && len(receipt.Accepted) == 1 {
			receipt.Disposition, receipt.Trigger = disposition, g
		}
	}
	return receipt, nil
}

// park keeps a delivery whose trigger is still to come. It refuses a delivery that no trigger can
// ever match.
func (m mail) park(a incoming) error {
	if _, err := uuid.Parse(a.TriggerID); err != nil && a.TriggerID != "" {
		return fmt.Errorf("trigger %s: %w", a.TriggerID, store.ErrNotFound)
	}
	if a.TriggerID == "" && a.ItemKey == "" {
		return errors.New("a delivery needs the id of a trigger, or a source and an item key")
	}
	if err := m.tx.Exec(
		"DELETE FROM deliveries WHERE disposition = 'parked' AND received_at < ?", m.tx.after(-store.ParkedFor)); err != nil {
		return err
	}
	return m.record(a.TriggerID, a, store.Parked)
}

// deliver records a delivery for a trigger. The caller settles the rollout afterwards.
func (m mail) deliver(g store.Trigger, a incoming) (store.Disposition, error) {
	if !g.State.IsOpen() {
		return m.deliverClosed(g, a)
	}
	if a.Fence != 0 && checkFence {
		err := m.tx.Row([]any{new(int)},
			"SELECT 1 FROM triggers WHERE trigger_id = ? AND owner = ? AND fence = ?", g.ID, m.tx.db.holder, a.Fence)
		if errors.Is(err, store.ErrNotFound) {
			return "", fmt.Errorf("trigger %s was taken over: %w", g.ID, store.ErrFenced)
		}
		if err != nil {
			return "", err
		}
	}
	if a.Fence == 0 && !g.Deadline.IsZero() && a.receivedAt >= g.Deadline.UnixMicro() {
		return store.Late, errors.Join(m.recordRest(g.ID, a, store.Late), m.tx.touch(g.RunID))
	}
	if err := m.record(g.ID, a, store.Accepted); err != nil {
		return "", err
	}
	// If something else than the job ended the wait, the trigger becomes due once more to have the
	// job cancelled. If the job is being started at this moment, that comes later.
	byHand := a.Fence == 0 && !a.ByJob
	endsJob := byHand || a.Status == store.StatusExpired
	m.tx.wake = m.tx.wake || endsJob
	if err := m.tx.Exec(
		`UPDATE triggers SET state = ?1, status = ?2, payload = ?3, fault = ?4, delivered_at = ?5, next_check = NULL,
			cancel = ?7 AND checked AND state IN ('starting', 'waiting'),
			due_at = CASE WHEN ?8 AND checked AND state = 'starting' AND owner IS NOT NULL THEN due_at WHEN ?7 AND checked AND state IN ('starting', 'waiting') THEN ?9 END,
			fence = CASE WHEN ?8 AND checked AND state = 'starting' AND owner IS NOT NULL THEN fence ELSE fence + 1 END,
			owner = CASE WHEN ?8 AND checked AND state = 'starting' THEN owner END,
			delivered_by = ?10, person = ?11, checked_at = CASE WHEN ?12 AND state = 'waiting' THEN ?9 ELSE checked_at END
		WHERE trigger_id = ?6`,
		string(delivered[a.Status]), string(a.Status), raw(a.Payload), marshal(a.Fault), a.receivedAt, g.ID, endsJob, byHand,
		m.tx.now, a.By, a.Person, a.Fence != 0); err != nil {
		return "", err
	}
	if g.AskedBy != "" {
		return store.Accepted, errors.Join(m.triggers.answered(g.AskedBy), m.deliveredEvent(g, a))
	}
	if err := m.triggers.endQuestions(g.ID); err != nil {
		return "", err
	}
	siblings, err := m.triggers.list(
		"WHERE t.rollout_id = ? AND t.interrupt_id = ? AND t.occurrence = ? AND t.sibling <> ? AND t.evaluator_id = ? AND t.state IN ('intended', 'starting', 'waiting')",
		g.RolloutID, g.InterruptID, g.Occurrence, g.Sibling, g.EvaluatorID)
	if err != nil {
		return "", err
	}
	for _, other := range siblings {
		if err := m.triggers.giveUp(other.ID, store.TriggerSuperseded); err != nil {
			return "", err
		}
	}
	return store.Accepted, m.deliveredEvent(g, a)
}

func (m mail) deliveredEvent(g store.Trigger, a incoming) error {
	data := map[string]any{"triggerId": g.ID, "interruptId": g.ShownID(), "status": a.Status, "by": a.By}
	if g.EvaluatorID != "" {
		data["evaluatorId"] = g.EvaluatorID
	}
	if a.Person != "" {
		data["person"] = a.Person
	}
	return m.tx.event(g.RunID, g.RolloutID, store.TriggerDelivered, data)
}

// deliverClosed keeps a delivery for a trigger that has one, or that nobody waits for.
func (m mail) deliverClosed(g store.Trigger, a incoming) (store.Disposition, error) {
	disposition := store.Late
	if g.Status != "" && g.Status != store.StatusExpired {
		disposition = store.Duplicate
	}
	if err := m.recordRest(g.ID, a, disposition); err != nil {
		return "", err
	}
	// The trigger was given up while this process was starting its job. The delivery says that the
	// start is over, so the job can be cancelled.
	if err := m.tx.Exec(
		"UPDATE triggers SET owner = NULL, due_at = ?1, fence = fence + 1 WHERE trigger_id = ?2 AND cancel AND owner = ?3 AND fence = ?4",
		m.tx.now, g.ID, m.tx.db.holder, a.Fence); err != nil {
		return "", err
	}
	return disposition, m.tx.touch(g.RunID)
}

// recordRest keeps a delivery that was not accepted, as far as store.MaxKept and MaxKeptPayload let
// it. A parked delivery is there already, and stays as it is.
func (m mail) recordRest(triggerID string, a incoming, as store.Disposition) error {
	if a.parked != 0 {
		return m.record(triggerID, a, as)
	}
	var kept int
	if err := m.tx.Row([]any{&kept},
		"SELECT count(*) FROM deliveries WHERE trigger_id = ? AND disposition IN ('duplicate', 'late')",
		triggerID); err != nil {
		return err
	}
	if kept >= store.MaxKept {
		return nil
	}
	if n := len(a.Payload); n > store.MaxKeptPayload && (as == store.Duplicate || kept > 0) {
		a.Payload = fmt.Appendf(nil, `{"notKept":{"bytes":%d,"sha256":"%x"}}`, n, sha256.Sum256(a.Payload))
	}
	return m.record(triggerID, a, as)
}

// record keeps a delivery and its disposition.
func (m mail) record(triggerID string, a incoming, as store.Disposition) error {
	if a.parked != 0 && !a.byKey {
		return m.tx.Exec(
			"UPDATE deliveries SET trigger_id = ?, disposition = ? WHERE id = ?", triggerID, string(as), a.parked)
	}
	var copyOf any
	if a.parked != 0 {
		copyOf = a.parked
	}
	return m.tx.Exec(
		`INSERT INTO deliveries (trigger_id, source, item_key, status, payload, fault, delivered_by, person, received_at, disposition, parked_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		triggerID, a.Source, a.ItemKey, string(a.Status), raw(a.Payload), marshal(a.Fault), a.By, a.Person, a.receivedAt,
		string(as), copyOf)
}

// openMailbox matches a trigger with the deliveries that came before it, and reports whether one
// was accepted. A delivery that is parked by source and item key answers each rollout once: it is
// not given again to a later segment, nor to an evaluator that waits again.
func (m mail) openMailbox(waits store.Trigger) (accepted bool, err error) {
	var found []incoming
	if err := m.tx.rows(func(r scanner) error {
		a, _, err := scanDelivery(r)
		found = append(found, a)
		return err
	}, "SELECT "+deliveryColumns+` FROM deliveries d WHERE disposition = 'parked' AND source = ?1 AND item_key = ?2 AND trigger_id = '' AND received_at >= ?3
			AND NOT EXISTS (SELECT 1 FROM deliveries c JOIN triggers t ON t.trigger_id = c.trigger_id
				WHERE c.parked_id = d.id AND t.rollout_id = ?5 AND (t.segment < ?6 OR t.trigger_id = ?4 OR t.evaluator_id = ?7 AND ?7 <> '' AND t.occurrence < ?8))
		UNION ALL SELECT `+deliveryColumns+
		" FROM deliveries WHERE trigger_id = ?4 AND disposition = 'parked' AND received_at >= ?3 ORDER BY id",
		waits.Source, waits.ItemKey, m.tx.after(-store.ParkedFor), waits.ID, waits.RolloutID, waits.Segment,
		waits.EvaluatorID, waits.Occurrence); err != nil {
		return false, err
	}
	for _, a := range found {
		a.TriggerID = waits.ID
		g, err := m.triggers.list("WHERE t.trigger_id = ?", waits.ID) // read again: the delivery before may have answered it
		if err != nil {
			return false, err
		}
		disposition, err := m.deliver(g[0], a)
		if err != nil {
			return false, err
		}
		accepted = accepted || disposition == store.Accepted
	}
	return accepted, nil
}
