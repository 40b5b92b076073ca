package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func (p *player) applyDeliver(s Store, o op) error {
	d := &modelDelivery{status: store.StatusSuccessful, payload: strconv.Itoa(o.c), at: p.model.now, holder: nobody}
	if o.c%6 == 0 {
		d.status = []store.Status{store.StatusFaulted, store.StatusCancelled, store.StatusExpired}[o.c%3]
	}
	switch {
	case o.kind == "deliverKey" && o.a%2 == 0:
		d.source, d.key = "http", fmt.Sprintf("job-%d", o.b%4)
	case o.kind == "deliverKey":
		d.source, d.key = "inbox", "key-"+string("xyz"[o.b%3])
	case o.a%3 > 0 && len(p.model.triggers) > 0:
		d.trigger = p.model.triggers[pick(o.b, len(p.model.triggers))].id
	case o.c%5 == 0: // perhaps of an evaluator's trigger still to come
		d.trigger = store.EvaluatorTriggerID(p.model.rollouts[o.a%len(p.model.rollouts)].id, strconv.Itoa(o.b%2), o.c%3, 0)
	default: // perhaps of a trigger still to come
		d.trigger = store.TriggerID(p.model.rollouts[o.a%len(p.model.rollouts)].id, string("xyz"[o.b%3]), o.c%3, 0)
	}
	want, accepted := p.model.deliver(d)
	got, err := s.Deliver(p.w.ctx, store.Delivery{
		TriggerID: d.trigger, Source: d.source, ItemKey: d.key, Status: d.status, Payload: json.RawMessage(d.payload)})
	if err != nil || got.Disposition != want || len(got.Accepted) != accepted {
		return fmt.Errorf("the delivery %+v is %s, accepted by %d, want %s by %d: %w", d, got.Disposition, len(got.Accepted),
			want, accepted, err)
	}
	return nil
}

// applyAnswer delivers what a source has answered, or that its trigger has expired.
func (p *player) applyAnswer(o op, by playedTrigger) error {
	g := p.model.triggers[slices.IndexFunc(p.model.triggers,
		func(g *modelTrigger) bool { return g.id == by.token.TriggerID })]
	d := &modelDelivery{
		trigger: g.id, payload: strconv.Itoa(o.c), at: p.model.now, holder: by.store, fence: by.token.Fence,
		status: []store.Status{store.StatusSuccessful, store.StatusFaulted, store.StatusExpired}[o.b%3]}
	holds := !g.state.IsOpen() || g.holder == by.store && g.fence == by.token.Fence
	got, err := p.stores[by.store].Deliver(p.w.ctx, store.Delivery{
		TriggerID: d.trigger, Status: d.status, Payload: json.RawMessage(d.payload), Fence: d.fence})
	if !holds {
		if !errors.Is(err, store.ErrFenced) {
			return fmt.Errorf("trigger %+v: got the error %w", *g, err)
		}
		return nil
	}
	if want, _ := p.model.deliver(d); err != nil || got.Disposition != want {
		return fmt.Errorf("the answer %+v is %s, want %s: %w", d, got.Disposition, want, err)
	}
	return nil
}

func (p *player) applyClaimTriggers(s Store, o op) error {
	limit := 1 + o.a%3
	claims, err := s.ClaimTriggers(p.w.ctx, p.runID, limit)
	if err != nil {
		return err
	}
	for _, c := range claims {
		want := p.model.dueTriggers(o.store)
		i := slices.IndexFunc(want, func(g *modelTrigger) bool { return g.id == c.TriggerID })
		if i < 0 {
			return fmt.Errorf("trigger %s cannot be claimed", c.TriggerID)
		}
		g := want[i]
		if action := p.model.claimTrigger(g, o.store); c.Action != action ||
			action != store.ActionCancel && c.Fence != g.fence {
			return fmt.Errorf("claim %+v, want %s of %+v", c, action, *g)
		}
		p.triggerClaims = append(p.triggerClaims, playedTrigger{o.store, c.TriggerToken})
	}
	_, limited := p.model.most[store.Limit{Kind: store.LimitSource, Name: "http"}]
	if limited && len(claims) > 0 {
		return nil // what the limit has held back may have taken the place of another
	}
	if left := p.model.dueTriggers(o.store); len(claims) < limit && len(left) > 0 {
		return fmt.Errorf("%d claims, limit %d, but %d more could be claimed", len(claims), limit, len(left))
	}
	return nil
}

func (p *player) applyRelease(o op, by playedTrigger) error {
	i := slices.IndexFunc(p.model.triggers, func(g *modelTrigger) bool { return g.id == by.token.TriggerID })
	g, s := p.model.triggers[i], p.stores[by.store]
	holds := g.holder == by.store && g.fence == by.token.Fence
	pause := time.Duration(o.b%60) * time.Second
	next := p.model.now.Add(pause)
	if o.b%5 == 0 {
		pause, next = store.Never, time.Time{}
	}
	key, notStarted := "", false
	var err error
	switch o.kind {
	case "started":
		key = fmt.Sprintf("job-%d", o.c%4)
		err = s.TriggerStarted(p.w.ctx, by.token, key, pause)
	case "pending":
		err = s.TriggerPending(p.w.ctx, by.token, pause)
	default:
		notStarted = o.c%2 == 0
		err = s.TriggerFailed(p.w.ctx, by.token, pause, store.TriggerFailure{
			Error: "boom", NotStarted: notStarted, NotTried: o.a%3 == 0})
	}
	if holds {
		p.model.release(g, key, next, notStarted)
		return err
	}
	if !errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("trigger %+v: got the error %w", *g, err)
	}
	return nil
}
