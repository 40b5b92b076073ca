package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func (p *player) applyClaim(s Store, o op) error {
	limit := 1 + o.a%3
	claims, err := s.Claim(p.w.ctx, p.runID, limit)
	if err != nil {
		return err
	}
	for _, c := range claims {
		want := p.model.claimable(o.store)
		i := slices.IndexFunc(want, func(o *modelRollout) bool { return o.id == c.RolloutID })
		if i < 0 {
			return fmt.Errorf("rollout %s cannot be claimed", c.RolloutID)
		}
		takenOver := want[i].holder != nobody && want[i].holder != o.store
		p.model.claim(want[i], o.store)
		var deliveries []string
		taken := p.model.taken(want[i])
		if c.State == eval.StateEvaluating {
			taken = p.model.arrived(want[i])
		}
		for _, g := range taken {
			deliveries = append(deliveries, g.id)
		}
		var got []string
		for _, d := range c.Deliveries {
			got = append(got, d.ID)
		}
		if c.Fence != want[i].fence || c.TakenOver != takenOver || c.Cancelled != want[i].cancelled ||
			!slices.Equal(got, deliveries) {
			return fmt.Errorf("claim %+v of %+v with the deliveries %v", c, *want[i], deliveries)
		}
		p.claims = append(p.claims, playedClaim{o.store, c.Token})
	}
	if left := p.model.claimable(o.store); len(claims) < limit && len(left) > 0 {
		return fmt.Errorf("%d claims, limit %d, but %d more could be claimed", len(claims), limit, len(left))
	}
	return nil
}

// applyLimit sets a limit, also below what runs, or removes it.
func (p *player) applyLimit(s Store, o op) error {
	l := []store.Limit{{Kind: store.LimitAll}, {Kind: store.LimitAgent, Name: "other"}, {Kind: store.LimitSource, Name: "http"}}[o.a%3]
	most := o.b%5 - 2
	if most < 0 {
		delete(p.model.most, l)
	} else {
		p.model.most[l] = most
	}
	l.Most = most
	return s.SetLimits(p.w.ctx, l)
}

// end makes an outcome of a segment of numbers.
func end(b, c int) store.SegmentEnd {
	e := store.SegmentEnd{Fault: &fault.Fault{Category: "agent"}}
	switch b % 12 {
	case 0:
		e.Outcome = store.OutcomeFailed
	case 1, 2:
		e.Outcome, e.Retry, e.RetryAfter = store.OutcomeFailed, true, time.Duration(c%20)*time.Second
	case 3:
		e.Outcome = store.OutcomeInterrupted
	case 4:
		return completed
	case 5:
		e.Outcome = store.OutcomeCancelled
	default:
		e.Outcome, e.Fault = store.OutcomeSuspended, nil
		if c%2 == 0 {
			e.SuspendTimeout = time.Minute
		}
		for i, interrupt := range []string{"x", "y", "z"} {
			if kind := (c >> (2 * i)) % 4; kind > 0 {
				e.Triggers = append(e.Triggers, []store.NewTrigger{
					external(interrupt), polled(interrupt, time.Time{}), startable(interrupt)}[kind-1])
				if (b+c)%5 == i { // a sibling
					e.Triggers = append(e.Triggers, startable(interrupt))
				}
			}
		}
		if len(e.Triggers) == 0 {
			e.Triggers = list(external("x"))
		}
		for i := range e.Triggers {
			e.Triggers[i].Digest = []string{"", "one", "another"}[(b/12)%3]
		}
	}
	return e
}

// scoreWait makes of numbers what evaluators wait for: the next two that have no result.
func (p *player) scoreWait(r *modelRollout, b, c int) (wait store.ScoreWait) {
	if c%2 == 0 {
		wait.Timeout = time.Minute
	}
	for i, interrupt := range []string{"x", "y", "x"} {
		if kind := (c >> (2 * i)) % 4; kind > 0 {
			n := []store.NewTrigger{external(interrupt), polled(interrupt, time.Time{}), startable(interrupt)}[kind-1]
			n.EvaluatorID = strconv.Itoa(r.results + (b>>i)%2)
			wait.Triggers = append(wait.Triggers, n)
		}
	}
	if len(wait.Triggers) == 0 && len(p.model.evaluatorsWait(r)) == 0 {
		n := external("x")
		n.EvaluatorID = strconv.Itoa(r.results)
		wait.Triggers = list(n)
	}
	return wait
}

func (p *player) applyWrite(o op, by playedClaim) error {
	s := p.stores[by.store]
	i := slices.IndexFunc(p.model.rollouts, func(o *modelRollout) bool { return o.id == by.token.RolloutID })
	r := p.model.rollouts[i]
	holds := r.holder == by.store && r.fence == by.token.Fence
	needs := eval.StateEvaluating
	var err error
	switch o.kind {
	case "commit":
		needs = eval.StateRunning
		e := end(o.b, o.c)
		var done store.Committed
		done, err = s.CommitSegment(p.w.ctx, by.token, e)
		if holds && r.state == needs {
			p.model.commit(r, e)
			if want := (store.Committed{
				State: r.state, Ready: r.state == eval.StateSuspended && !r.runnable.IsZero()}); err == nil && done != want {
				return fmt.Errorf("committed %+v, want %+v", done, want)
			}
			return err
		}
	case "result":
		err = s.RecordResult(p.w.ctx, by.token, store.Result{
			EvaluatorID: strconv.Itoa(r.results), Data: json.RawMessage(`[]`)})
		if holds && r.state == needs {
			p.model.consume(r, strconv.Itoa(r.results))
			r.results++
			return err
		}
	case "score":
		wait := p.scoreWait(r, o.b, o.c)
		var done store.Committed
		done, err = s.WaitForScores(p.w.ctx, by.token, wait)
		if holds && r.state == needs {
			p.model.waitForScores(r, wait)
			if want := (store.Committed{State: r.state, Ready: !r.runnable.IsZero()}); err == nil && done != want {
				return fmt.Errorf("committed %+v, want %+v", done, want)
			}
			return err
		}
	default:
		err = s.Finish(p.w.ctx, by.token, nil)
		if holds && r.state == needs {
			p.model.finish(r)
			return err
		}
	}
	if err == nil || errors.Is(err, store.ErrFenced) == holds {
		return fmt.Errorf("rollout %+v: got the error %w", *r, err)
	}
	return nil
}

func (p *player) applyCancel(s Store, r *modelRollout) error {
	want := 1
	switch {
	case r.state.IsTerminal():
		want = 0
	case r.state == eval.StateRunning:
		r.cancelled = true
	default:
		p.model.cancel(r)
	}
	if n, err := s.Cancel(p.w.ctx, r.id); err != nil || n != want {
		return fmt.Errorf("%d cancelled, want %d: %w", n, want, err)
	}
	return nil
}

// applyForget makes a store forget some of the claims that any store has ever had, as if it had never
// got the answer with them.
func (p *player) applyForget(s Store, o op) error {
	var tokens store.Tokens
	for i, c := range p.claims {
		if (i+o.a)%3 == 0 {
			tokens.Rollouts = append(tokens.Rollouts, c.token)
			for _, r := range p.model.rollouts {
				if r.id == c.token.RolloutID && r.fence == c.token.Fence && r.holder == o.store {
					r.forgotten = true
				}
			}
		}
	}
	for i, c := range p.triggerClaims {
		if (i+o.b)%3 == 0 {
			tokens.Triggers = append(tokens.Triggers, c.token)
			for _, g := range p.model.triggers {
				if g.id == c.token.TriggerID && g.fence == c.token.Fence && g.holder == o.store {
					g.forgotten = true
				}
			}
		}
	}
	s.Forget(tokens)
	return nil
}

// applyRenew renews some of the claims that any store has ever had.
func (p *player) applyRenew(s Store, o op) error {
	var tokens store.Tokens
	var wantHeld, wantCancelled []string
	for i, c := range p.claims {
		if (i+o.a)%5 == 0 {
			continue
		}
		tokens.Rollouts = append(tokens.Rollouts, c.token)
		for _, r := range p.model.rollouts {
			if r.id == c.token.RolloutID && r.fence == c.token.Fence && r.holder == o.store {
				r.lease = p.model.now.Add(lease)
				wantHeld = append(wantHeld, r.id)
				if r.cancelled {
					wantCancelled = append(wantCancelled, r.id)
				}
			}
		}
	}
	for i, c := range p.triggerClaims {
		if (i+o.b)%5 == 0 {
			continue
		}
		tokens.Triggers = append(tokens.Triggers, c.token)
		for _, g := range p.model.triggers {
			if g.id == c.token.TriggerID && g.fence == c.token.Fence && g.holder == o.store {
				g.due = p.model.now.Add(lease)
			}
		}
	}
	held, cancelled, err := s.Renew(p.w.ctx, tokens)
	for _, ids := range [][]string{wantHeld, wantCancelled, held, cancelled} {
		slices.Sort(ids)
	}
	if err != nil || !slices.Equal(held, wantHeld) || !slices.Equal(cancelled, wantCancelled) {
		return fmt.Errorf("held %v, cancelled %v, want %v and %v: %w", held, cancelled, wantHeld, wantCancelled, err)
	}
	return nil
}
