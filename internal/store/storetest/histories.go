package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// historySpecs plays random histories on a store that three processes share, one of them dead, and compares it with the model after each
// operation. EVALRUN_STORE_HISTORIES says how many (default 2); a history that fails is shortened and printed.
func historySpecs(s *suite) {
	n := 2
	if text := os.Getenv("EVALRUN_STORE_HISTORIES"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for seed := range n {
		s.spec(fmt.Sprintf("history %d", seed), func(w *world) {
			ops := history(rand.New(rand.NewPCG(uint64(seed), 11)), 80)
			err := play(w, ops)
			if err == nil {
				return
			}
			// Take away what is not needed for it to fail.
			for i := len(ops) - 1; i >= 0; i-- {
				if shorter := slices.Delete(slices.Clone(ops), i, i+1); len(ops) > 1 && play(w, shorter) != nil {
					ops = shorter
				}
			}
			if shortest := play(w, ops); shortest != nil {
				err = shortest
			}
			var text strings.Builder
			for _, o := range ops {
				fmt.Fprintf(&text, "\n\t%s", o)
			}
			w.Fatalf("%v\nthe operations:%s", err, &text)
		})
	}
}

// op is an operation by a store; what its numbers choose depends on what is there when it is applied, so that a history from which
// operations are taken is still one.
type op struct {
	kind    string
	store   int
	a, b, c int
}

func (o op) String() string {
	return fmt.Sprintf("%s(store %d; %d, %d, %d)", o.kind, o.store, o.a, o.b, o.c)
}

// kinds are the operations, those that happen often more than once.
var kinds = []string{"claim", "claim", "claim", "commit", "commit", "commit", "commit", "commit", "result", "finish", "deliver", "deliver", "deliver", "deliverKey",
	"claimTriggers", "claimTriggers", "started", "pending", "failed", "answered", "cancel", "renew", "advance", "advance"}

func history(r *rand.Rand, n int) []op {
	ops := make([]op, n)
	for i := range ops {
		ops[i] = op{kinds[r.IntN(len(kinds))], r.IntN(3), r.IntN(1000), r.IntN(1000), r.IntN(1000)}
	}
	return ops
}

// player applies operations to a store and to the model.
type player struct {
	w *world
	model
	runID  string
	stores []store.Store
	claims []playedClaim
	// triggerClaims are never given back; most of them are stale.
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
	p := &player{w: &fresh}
	for i := range 3 {
		as := store.ThisProcess()
		if i == deadHolder {
			as = deadProcess()
		}
		s := w.open(w.TB, fresh.dir, store.Options{Now: fresh.Now, Lease: lease, Process: &as})
		defer func() { w.must(s.Close()) }()
		p.stores = append(p.stores, s)
	}
	p.w.a = p.stores[0]
	plan := plan(4, func(p *store.Plan) {
		for i := range p.Rollouts {
			p.Rollouts[i].All, p.Rollouts[i].AcceptsFaults = i%2 == 1, i >= 2
		}
	})
	p.runID = plan.RunID
	if _, err := p.w.a.CreateRun(p.w.ctx, plan); err != nil {
		return err
	}
	for _, r := range plan.Rollouts {
		p.rollouts = append(p.rollouts, &modelRollout{id: r.ID, all: r.All, accepts: r.AcceptsFaults, state: eval.StatePending, holder: nobody, runnable: p.w.Now()})
	}
	for i, o := range ops {
		p.now = p.w.Now()
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
	case "commit", "result", "finish":
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
		return p.applyCancel(s, p.rollouts[o.a%len(p.rollouts)])
	case "renew":
		return p.applyRenew(s, o.store)
	}
	d := time.Duration(o.a%40) * time.Second
	if o.b%40 == 0 {
		d = 8 * 24 * time.Hour
	}
	p.w.advance(d)
	p.now = p.w.Now()
	return nil
}

// pick chooses of n, mostly one of the last.
func pick(a, n int) int {
	if a%4 != 0 {
		return max(0, n-1-(a/4)%5)
	}
	return (a / 4) % n
}

func (p *player) applyClaim(s store.Store, o op) error {
	limit := 1 + o.a%3
	want := p.claimable(o.store)
	claims, err := s.Claim(p.w.ctx, p.runID, limit)
	if err != nil || len(claims) != min(limit, len(want)) {
		return fmt.Errorf("%d claims of %d, limit %d: %w", len(claims), len(want), limit, err)
	}
	for _, c := range claims {
		i := slices.IndexFunc(want, func(o *modelRollout) bool { return o.id == c.RolloutID })
		if i < 0 {
			return fmt.Errorf("rollout %s cannot be claimed", c.RolloutID)
		}
		taken := want[i].holder != nobody
		p.claim(want[i], o.store)
		var deliveries []string
		if c.State == eval.StateRunning {
			for _, g := range p.taken(want[i]) {
				deliveries = append(deliveries, g.id)
			}
		}
		var got []string
		for _, d := range c.Deliveries {
			got = append(got, d.ID)
		}
		if c.Fence != want[i].fence || c.TakenOver != taken || c.Cancelled != want[i].cancelled || !slices.Equal(got, deliveries) {
			return fmt.Errorf("claim %+v of %+v with the deliveries %v", c, *want[i], deliveries)
		}
		p.claims = append(p.claims, playedClaim{o.store, c.Token})
	}
	return nil
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
				e.Triggers = append(e.Triggers, []store.NewTrigger{external(interrupt), polled(interrupt, time.Time{}), startable(interrupt)}[kind-1])
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

func (p *player) applyWrite(o op, by playedClaim) error {
	s := p.stores[by.store]
	i := slices.IndexFunc(p.rollouts, func(o *modelRollout) bool { return o.id == by.token.RolloutID })
	r := p.rollouts[i]
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
			p.commit(r, e)
			if want := (store.Committed{State: r.state, Ready: r.state == eval.StateSuspended && !r.runnable.IsZero()}); err == nil && done != want {
				return fmt.Errorf("committed %+v, want %+v", done, want)
			}
			return err
		}
	case "result":
		err = s.RecordResult(p.w.ctx, by.token, store.Result{EvaluatorID: strconv.Itoa(r.results), Data: json.RawMessage(`[]`)})
		if holds && r.state == needs {
			r.results++
			return err
		}
	default:
		err = s.Finish(p.w.ctx, by.token, nil)
		if holds && r.state == needs {
			p.end(r, eval.StateCompleted)
			return err
		}
	}
	if err == nil || errors.Is(err, store.ErrFenced) == holds {
		return fmt.Errorf("rollout %+v: got the error %w", *r, err)
	}
	return nil
}

func (p *player) applyDeliver(s store.Store, o op) error {
	d := &modelDelivery{status: store.StatusSuccessful, payload: strconv.Itoa(o.c), at: p.now, holder: nobody}
	if o.c%6 == 0 {
		d.status = []store.Status{store.StatusFaulted, store.StatusCancelled, store.StatusExpired}[o.c%3]
	}
	switch {
	case o.kind == "deliverKey" && o.a%2 == 0:
		d.source, d.key = "http", fmt.Sprintf("job-%d", o.b%4)
	case o.kind == "deliverKey":
		d.source, d.key = "inbox", "key-"+string("xyz"[o.b%3])
	case o.a%3 > 0 && len(p.triggers) > 0:
		d.trigger = p.triggers[pick(o.b, len(p.triggers))].id
	default: // perhaps of a trigger still to come
		d.trigger = store.TriggerID(p.rollouts[o.a%len(p.rollouts)].id, string("xyz"[o.b%3]), o.c%3, 0)
	}
	want, accepted := p.deliver(d)
	got, err := s.Deliver(p.w.ctx, store.Delivery{TriggerID: d.trigger, Source: d.source, ItemKey: d.key, Status: d.status, Payload: json.RawMessage(d.payload)})
	if err != nil || got.Disposition != want || len(got.Accepted) != accepted {
		return fmt.Errorf("the delivery %+v is %s, accepted by %d, want %s by %d: %w", d, got.Disposition, len(got.Accepted), want, accepted, err)
	}
	return nil
}

// applyAnswer delivers what a source has answered, or that its trigger has expired.
func (p *player) applyAnswer(o op, by playedTrigger) error {
	g := p.triggers[slices.IndexFunc(p.triggers, func(g *modelTrigger) bool { return g.id == by.token.TriggerID })]
	d := &modelDelivery{trigger: g.id, payload: strconv.Itoa(o.c), at: p.now, holder: by.store, fence: by.token.Fence,
		status: []store.Status{store.StatusSuccessful, store.StatusFaulted, store.StatusExpired}[o.b%3]}
	holds := !g.state.IsOpen() || g.holder == by.store && g.fence == by.token.Fence
	got, err := p.stores[by.store].Deliver(p.w.ctx, store.Delivery{TriggerID: d.trigger, Status: d.status, Payload: json.RawMessage(d.payload), Fence: d.fence})
	if !holds {
		if !errors.Is(err, store.ErrFenced) {
			return fmt.Errorf("trigger %+v: got the error %w", *g, err)
		}
		return nil
	}
	if want, _ := p.deliver(d); err != nil || got.Disposition != want {
		return fmt.Errorf("the answer %+v is %s, want %s: %w", d, got.Disposition, want, err)
	}
	return nil
}

func (p *player) applyClaimTriggers(s store.Store, o op) error {
	limit := 1 + o.a%3
	want := p.dueTriggers(o.store)
	claims, err := s.ClaimTriggers(p.w.ctx, p.runID, limit)
	if err != nil || len(claims) != min(limit, len(want)) {
		return fmt.Errorf("%d claims of %d, limit %d: %w", len(claims), len(want), limit, err)
	}
	for _, c := range claims {
		i := slices.IndexFunc(want, func(g *modelTrigger) bool { return g.id == c.TriggerID })
		if i < 0 {
			return fmt.Errorf("trigger %s cannot be claimed", c.TriggerID)
		}
		g := want[i]
		if action := p.claimTrigger(g, o.store); c.Action != action || action != store.ActionCancel && c.Fence != g.fence {
			return fmt.Errorf("claim %+v, want %s of %+v", c, action, *g)
		}
		p.triggerClaims = append(p.triggerClaims, playedTrigger{o.store, c.TriggerToken})
	}
	return nil
}

func (p *player) applyRelease(o op, by playedTrigger) error {
	i := slices.IndexFunc(p.triggers, func(g *modelTrigger) bool { return g.id == by.token.TriggerID })
	g, s := p.triggers[i], p.stores[by.store]
	holds := g.holder == by.store && g.fence == by.token.Fence
	next := p.now.Add(time.Duration(o.b%60) * time.Second)
	if o.b%5 == 0 {
		next = time.Time{}
	}
	key, notStarted := "", false
	var err error
	switch o.kind {
	case "started":
		key = fmt.Sprintf("job-%d", o.c%4)
		err = s.TriggerStarted(p.w.ctx, by.token, key, next)
	case "pending":
		err = s.TriggerPending(p.w.ctx, by.token, next)
	default:
		notStarted = o.c%2 == 0
		err = s.TriggerFailed(p.w.ctx, by.token, next, store.TriggerFailure{Error: "boom", NotStarted: notStarted})
	}
	if holds {
		p.release(g, key, next, notStarted)
		return err
	}
	if !errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("trigger %+v: got the error %w", *g, err)
	}
	return nil
}

func (p *player) applyCancel(s store.Store, r *modelRollout) error {
	want := 1
	switch {
	case r.state.IsTerminal():
		want = 0
	case r.state == eval.StateRunning:
		r.cancelled = true
	default:
		p.cancel(r)
	}
	if n, err := s.Cancel(p.w.ctx, r.id); err != nil || n != want {
		return fmt.Errorf("%d cancelled, want %d: %w", n, want, err)
	}
	return nil
}

func (p *player) applyRenew(s store.Store, by int) error {
	var wantHeld, wantCancelled []string
	for _, r := range p.rollouts {
		if r.holder == by {
			r.lease = p.now.Add(lease)
			wantHeld = append(wantHeld, r.id)
			if r.cancelled {
				wantCancelled = append(wantCancelled, r.id)
			}
		}
	}
	for _, g := range p.triggers {
		if g.holder == by {
			g.due = p.now.Add(lease)
		}
	}
	held, cancelled, err := s.Renew(p.w.ctx)
	for _, ids := range [][]string{wantHeld, wantCancelled, held, cancelled} {
		slices.Sort(ids)
	}
	if err != nil || !slices.Equal(held, wantHeld) || !slices.Equal(cancelled, wantCancelled) {
		return fmt.Errorf("held %v, cancelled %v, want %v and %v: %w", held, cancelled, wantHeld, wantCancelled, err)
	}
	return nil
}
