package storetest

import (
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// player applies operations to a store and to the model.
type player struct {
	w      *world
	model  model
	runID  string
	stores []Store
	claims []playedClaim
	// triggerClaims are never taken out of the list; most of them are stale.
	triggerClaims []playedTrigger
	last          playedView
}

type playedClaim struct {
	store int
	token store.Token
}

type playedTrigger struct {
	store int
	token store.TriggerToken
}

// play plays a history on a new store and says where it went wrong.
func play(w *world, ops []op) error {
	fresh := *w
	fresh.clock = &clock{now: w.Now()}
	fresh.dir = w.TempDir()
	p := &player{w: &fresh, model: model{dead: unseen, most: map[store.Limit]int{}}}
	for i := range 3 {
		as := store.ThisProcess()
		if i == deadHolder && seesProcesses(p.stores[0]) {
			as, p.model.dead = deadProcess(), i
		}
		o := store.Options{Now: fresh.Now, Lease: lease, Process: &as}
		if i == taggedStore {
			o.Tags = []string{"gpu"}
		}
		s := w.open(w.TB, fresh.dir, o)
		defer func() { w.must(s.Close()) }()
		p.stores = append(p.stores, s)
	}
	p.w.a = p.stores[0]
	plan := plan(4, func(p *store.Plan) {
		for i := range p.Rollouts {
			p.Rollouts[i].All, p.Rollouts[i].AcceptsFaults = i%2 == 1, i >= 2
			if i >= 2 {
				p.Rollouts[i].Agent = "other"
			}
		}
		p.Rollouts[3].Tags = []string{"gpu"}
	})
	p.runID = plan.RunID
	if _, err := p.w.a.CreateRun(p.w.ctx, plan); err != nil {
		return err
	}
	for _, r := range plan.Rollouts {
		p.model.rollouts = append(p.model.rollouts, &modelRollout{
			id: r.ID, agent: r.Agent, tags: r.Tags, all: r.All, accepts: r.AcceptsFaults, state: eval.StatePending, holder: nobody, runnable: p.w.Now()})
	}
	for i, o := range ops {
		p.model.now = p.w.Now()
		err := p.apply(o)
		if err == nil {
			err = p.compare(o.store)
		}
		if err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, o, err)
		}
	}
	return nil
}

func (p *player) apply(o op) error {
	s := p.stores[o.store]
	switch o.kind {
	case "claim":
		return p.applyClaim(s, o)
	case "commit", "result", "score", "finish":
		if len(p.claims) == 0 {
			return nil
		}
		return p.applyWrite(o, p.claims[pick(o.a, len(p.claims))])
	case "deliver", "deliverKey":
		return p.applyDeliver(s, o)
	case "claimTriggers":
		return p.applyClaimTriggers(s, o)
	case "started", "pending", "failed", "answered":
		if len(p.triggerClaims) == 0 {
			return nil
		}
		if o.kind == "answered" {
			return p.applyAnswer(o, p.triggerClaims[pick(o.a, len(p.triggerClaims))])
		}
		return p.applyRelease(o, p.triggerClaims[pick(o.a, len(p.triggerClaims))])
	case "cancel":
		if o.b%4 != 0 {
			return nil // not so often
		}
		return p.applyCancel(s, p.model.rollouts[o.a%len(p.model.rollouts)])
	case "renew":
		return p.applyRenew(s, o)
	case "forget":
		return p.applyForget(s, o)
	case "limit":
		return p.applyLimit(s, o)
	}
	d := time.Duration(o.a%40) * time.Second
	if o.b%40 == 0 {
		d = 8 * 24 * time.Hour
	}
	p.w.advance(d)
	p.model.now = p.w.Now()
	return nil
}

// pick chooses of n, mostly one of the last.
func pick(a, n int) int {
	if a%4 != 0 {
		return max(0, n-1-(a/4)%5)
	}
	return (a / 4) % n
}
