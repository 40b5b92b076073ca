package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// delivered is what a trigger becomes with a delivery.
var delivered = map[Status]TriggerState{
	StatusSuccessful: TriggerFired, StatusFaulted: TriggerFaulted, StatusCancelled: TriggerCancelled, StatusExpired: TriggerExpired,
}

// arrival is a delivery with the time at which the store took it. Parked is its row, if it has one already.
type arrival struct {
	Delivery
	receivedAt int64
	parked     int64
}

// Deliver implements Store.
func (s *SQLite) Deliver(ctx context.Context, d Delivery) (receipt Receipt, err error) {
	if delivered[d.Status] == "" {
		return Receipt{}, fmt.Errorf("a delivery cannot be %q", d.Status)
	}
	err = s.writeOp(ctx, func(t *tx) error {
		receipt = Receipt{}
		a := arrival{Delivery: d, receivedAt: t.now}
		g, err := t.addressee(d)
		if errors.Is(err, ErrNotFound) {
			receipt.Disposition = Parked
			return t.park(a)
		}
		if err != nil {
			return err
		}
		receipt.Trigger = g
		if receipt.Disposition, err = t.deliver(g, a); err != nil || receipt.Disposition != Accepted {
			return err
		}
		return t.settleDelivered(g)
	})
	if err != nil {
		return Receipt{}, err
	}
	return receipt, nil
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

// park keeps a delivery whose trigger is still to come. What can be no trigger's address is refused.
func (t *tx) park(a arrival) error {
	if _, err := uuid.Parse(a.TriggerID); err != nil && a.TriggerID != "" {
		return fmt.Errorf("trigger %s: %w", a.TriggerID, ErrNotFound)
	}
	if a.TriggerID == "" && a.ItemKey == "" {
		return errors.New("a delivery needs the id of a trigger, or a source and an item key")
	}
	if err := t.exec("DELETE FROM deliveries WHERE disposition = 'parked' AND received_at < ?", t.after(-parkedFor)); err != nil {
		return err
	}
	return t.record(a.TriggerID, a, Parked)
}

// deliver records a delivery for a trigger. What follows for its rollout is settleDelivered's.
func (t *tx) deliver(g Trigger, a arrival) (Disposition, error) {
	if !g.State.IsOpen() {
		return t.deliverClosed(g, a)
	}
	if a.Fence != 0 && checkFence {
		err := t.row([]any{new(int)}, "SELECT 1 FROM triggers WHERE trigger_id = ? AND owner = ? AND fence = ?", g.ID, t.store.holder, a.Fence)
		if errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("trigger %s was taken over: %w", g.ID, ErrFenced)
		}
		if err != nil {
			return "", err
		}
	}
	if err := t.record(g.ID, a, Accepted); err != nil {
		return "", err
	}
	if err := t.exec(`UPDATE triggers SET state = ?, status = ?, payload = ?, fault = ?, delivered_at = ?, owner = NULL, due_at = NULL, next_check = NULL, fence = fence + 1
		WHERE trigger_id = ?`, string(delivered[a.Status]), string(a.Status), raw(a.Payload), marshal(a.Fault), a.receivedAt, g.ID); err != nil {
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
	return Accepted, t.event(g.RunID, g.RolloutID, TriggerDelivered, map[string]any{"triggerId": g.ID, "interruptId": g.InterruptID, "status": a.Status, "by": a.By})
}

// deliverClosed keeps a delivery for a trigger that has one, or that nobody waits for.
func (t *tx) deliverClosed(g Trigger, a arrival) (Disposition, error) {
	disposition := Late
	if g.Status != "" {
		disposition = Duplicate
	}
	if err := t.record(g.ID, a, disposition); err != nil {
		return "", err
	}
	// Whoever was starting its job when it was given up says with this how that went.
	if err := t.exec("UPDATE triggers SET owner = NULL, due_at = ?1, fence = fence + 1 WHERE trigger_id = ?2 AND cancel AND owner IS NOT NULL", t.now, g.ID); err != nil {
		return "", err
	}
	return disposition, t.touch(g.RunID)
}

// settleDelivered looks what follows for a rollout from a delivery for one of its triggers.
func (t *tx) settleDelivered(g Trigger) error {
	var state State
	if err := t.row([]any{&state}, "SELECT state FROM rollouts WHERE rollout_id = ?", g.RolloutID); err != nil || state != StateSuspended {
		return err
	}
	triggers, err := t.triggers(whereWaiting, g.RolloutID)
	if err != nil {
		return err
	}
	_, err = t.settle(g.RunID, g.RolloutID, triggers)
	return err
}

// record keeps a delivery, and with it what became of it.
func (t *tx) record(triggerID string, a arrival, as Disposition) error {
	if a.parked != 0 {
		return t.exec("UPDATE deliveries SET trigger_id = ?, disposition = ? WHERE id = ?", triggerID, string(as), a.parked)
	}
	return t.exec(`INSERT INTO deliveries (trigger_id, source, item_key, status, payload, fault, delivered_by, received_at, disposition)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, triggerID, a.Source, a.ItemKey, string(a.Status), raw(a.Payload), marshal(a.Fault), a.By, a.receivedAt, string(as))
}

const deliveryColumns = "id, source, item_key, status, payload, fault, delivered_by, received_at, disposition"

func scanDelivery(r scanner) (a arrival, as Disposition, err error) {
	var fault []byte
	if err := r.Scan(&a.parked, &a.Source, &a.ItemKey, &a.Status, (*[]byte)(&a.Payload), &fault, &a.By, &a.receivedAt, &as); err != nil {
		return a, as, err
	}
	a.Fault, err = unmarshalFault(fault)
	return a, as, err
}

// openMailbox matches a trigger with the deliveries that came before it, and reports whether one was accepted.
func (t *tx) openMailbox(triggerID, source, itemKey string) (accepted bool, err error) {
	var found []arrival
	if err := t.rows(func(r scanner) error {
		a, _, err := scanDelivery(r)
		found = append(found, a)
		return err
	}, "SELECT "+deliveryColumns+" FROM deliveries WHERE disposition = 'parked' AND source = ?1 AND item_key = ?2 AND trigger_id = '' AND received_at >= ?3 UNION ALL SELECT "+
		deliveryColumns+" FROM deliveries WHERE trigger_id = ?4 AND disposition = 'parked' AND received_at >= ?3 ORDER BY id",
		source, itemKey, t.after(-parkedFor), triggerID); err != nil {
		return false, err
	}
	for _, a := range found {
		a.TriggerID = triggerID
		g, err := t.addressee(a.Delivery) // anew: the one before may have answered it
		if err != nil {
			return false, err
		}
		disposition, err := t.deliver(g, a)
		if err != nil {
			return false, err
		}
		accepted = accepted || disposition == Accepted
	}
	return accepted, nil
}

// Deliveries implements Store.
func (s *SQLite) Deliveries(ctx context.Context, triggerID string) (out []Delivered, err error) {
	defer func() { err = s.describe(err) }()
	rows, err := s.read.QueryContext(ctx, "SELECT "+deliveryColumns+" FROM deliveries WHERE trigger_id = ? ORDER BY received_at, id", triggerID)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		a, as, err := scanDelivery(r)
		a.TriggerID = triggerID
		out = append(out, Delivered{a.Delivery, time.UnixMicro(a.receivedAt).UTC(), as})
		return err
	})
	return out, err
}
