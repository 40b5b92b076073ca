package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
)

// Deliver implements Store.
func (s *SQLite) Deliver(ctx context.Context, d Delivery) (receipt Receipt, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		receipt = Receipt{}
		t.wake = true
		g, err := t.addressee(d)
		if errors.Is(err, ErrNotFound) {
			receipt.Disposition = Parked
			if d.TriggerID != "" {
				return err // an id is made with its trigger: it can only be mistaken
			}
			if err := t.exec("DELETE FROM deliveries WHERE disposition = 'parked' AND received_at < ?", t.after(-parkedFor)); err != nil {
				return err
			}
			return t.recordDelivery("", d, Parked)
		}
		if err != nil {
			return err
		}
		receipt.Disposition, err = t.deliver(g, d)
		receipt.Trigger = g
		return err
	})
	return receipt, err
}

// addressee finds the trigger of a delivery; of several with one item key the one that still waits, else the newest.
func (t *tx) addressee(d Delivery) (Trigger, error) {
	where, args := "WHERE t.trigger_id = ?", []any{d.TriggerID}
	if d.TriggerID == "" {
		where, args = "WHERE t.item_key = ? AND t.source = ? ORDER BY t.state IN ('intended', 'starting', 'waiting') DESC, t.id DESC LIMIT 1", []any{d.ItemKey, d.Source}
	}
	found, err := t.triggers(where, args...)
	if err != nil {
		return Trigger{}, err
	}
	if len(found) == 0 {
		return Trigger{}, ErrNotFound
	}
	return found[0], nil
}

// deliver records a delivery for a trigger and does what follows from it.
func (t *tx) deliver(g Trigger, d Delivery) (Disposition, error) {
	switch {
	case g.State.IsOpen():
	case g.Status != "":
		return Duplicate, t.recordDelivery(g.ID, d, Duplicate)
	default:
		return Late, t.recordDelivery(g.ID, d, Late)
	}
	if err := t.recordDelivery(g.ID, d, Accepted); err != nil {
		return "", err
	}
	state := map[Status]TriggerState{StatusSuccessful: TriggerFired, StatusFaulted: TriggerFaulted, StatusCancelled: TriggerCancelled, StatusExpired: TriggerExpired}[d.Status]
	if err := t.exec(`UPDATE triggers SET state = ?, status = ?, payload = ?, fault = ?, delivered_at = ?, owner = NULL, due_at = NULL, next_check = NULL, fence = fence + 1
		WHERE trigger_id = ?`, string(state), string(d.Status), raw(d.Payload), marshal(d.Fault), t.now, g.ID); err != nil {
		return "", err
	}
	siblings, err := t.triggers("WHERE t.rollout_id = ? AND t.interrupt_id = ? AND t.occurrence = ? AND t.sibling <> ? AND t.state IN ('intended', 'starting', 'waiting')",
		g.RolloutID, g.InterruptID, g.Occurrence, g.Sibling)
	if err != nil {
		return "", err
	}
	for _, other := range siblings {
		if err := t.giveUp(other.ID, TriggerSuperseded); err != nil {
			return "", err
		}
	}
	if err := t.event(g.RunID, g.RolloutID, TriggerDelivered, map[string]any{"triggerId": g.ID, "interruptId": g.InterruptID, "status": d.Status, "by": d.By}); err != nil {
		return "", err
	}
	_, err = t.settle(g.RolloutID, new(Committed))
	return Accepted, err
}

func (t *tx) recordDelivery(triggerID string, d Delivery, as Disposition) error {
	return t.exec(`INSERT INTO deliveries (trigger_id, source, item_key, status, payload, fault, delivered_by, received_at, disposition)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, triggerID, d.Source, d.ItemKey, string(d.Status), raw(d.Payload), marshal(d.Fault), d.By, t.now, string(as))
}

// openMailbox matches a trigger with the deliveries that came before it.
func (t *tx) openMailbox(triggerID, source, itemKey string) error {
	type parked struct {
		id int64
		Delivery
	}
	var found []parked
	if err := t.rows(func(r scanner) error {
		p := parked{Delivery: Delivery{TriggerID: triggerID, Source: source, ItemKey: itemKey}}
		var payload, fault []byte
		var by sql.NullString
		if err := r.Scan(&p.id, &p.Status, &payload, &fault, &by); err != nil {
			return err
		}
		p.Payload, p.By = json.RawMessage(payload), by.String
		var err error
		p.Fault, err = unmarshalFault(fault)
		found = append(found, p)
		return err
	}, "SELECT id, status, payload, fault, delivered_by FROM deliveries WHERE disposition = 'parked' AND source = ? AND item_key = ? AND received_at >= ? ORDER BY id",
		source, itemKey, t.after(-parkedFor)); err != nil {
		return err
	}
	for _, p := range found {
		if err := t.exec("DELETE FROM deliveries WHERE id = ?", p.id); err != nil {
			return err
		}
		g, err := t.addressee(p.Delivery)
		if err != nil {
			return err
		}
		if _, err := t.deliver(g, p.Delivery); err != nil {
			return err
		}
	}
	return nil
}
