package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// maxChecks is how many sources are asked at once.
const maxChecks = 8

// triggerLoop claims the triggers that are due and has them handled, a few at a time.
type triggerLoop struct {
	r       *Runner
	handler *triggerHandler
	batches *batchHandler

	mu sync.Mutex
	// triggers and requests hold the claims that are being handled.
	triggers map[store.TriggerToken]bool
	requests map[store.BatchToken]bool
	// due says that triggers should be claimed. nextDue is the earliest known time at which one
	// becomes due. outdated says that the store may know of an earlier time, or of a first one.
	due      bool
	nextDue  time.Time
	outdated bool
	// askedThisRound holds the triggers that were claimed since a rollout last began or ended.
	// roundDone says that one of them was claimed a second time: then all due triggers have had
	// their turn, since the longest due are claimed first. Only a runner that ends when it is idle
	// counts rounds; for others askedThisRound is nil.
	askedThisRound map[string]bool
	roundDone      bool
}

func newTriggerLoop(r *Runner) *triggerLoop {
	l := &triggerLoop{r: r, due: true, triggers: map[store.TriggerToken]bool{}, requests: map[store.BatchToken]bool{}}
	l.handler = &triggerHandler{o: r.o, runs: r.runs, jobsChanged: l.markDue}
	l.batches = &batchHandler{r.o, r.runs}
	return l
}

// countRounds makes the loop notice when every due trigger has been asked once.
func (l *triggerLoop) countRounds() { l.askedThisRound = map[string]bool{} }

// markDue says that there may be triggers to claim.
func (l *triggerLoop) markDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = true
}

// checking reports whether triggers are being handled.
func (l *triggerLoop) checking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checksInFlight() > 0
}

// checksInFlight is how many claims are being handled. l.mu is held.
func (l *triggerLoop) checksInFlight() int { return len(l.triggers) + len(l.requests) }

// addClaims adds the claims that are being handled to others.
func (l *triggerLoop) addClaims(t *store.Tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Triggers = slices.AppendSeq(t.Triggers, maps.Keys(l.triggers))
	t.Batches = slices.AppendSeq(t.Batches, maps.Keys(l.requests))
}

// claim claims the triggers and batches that are due. busy says that rollouts are being worked on;
// otherwise a round that is done is the last.
func (l *triggerLoop) claim(ctx context.Context, busy bool) error {
	for {
		l.mu.Lock()
		due := l.due || !l.nextDue.IsZero() && !l.nextDue.After(l.r.o.Now())
		limit := maxChecks - l.checksInFlight()
		due = due && (!l.roundDone || busy)
		l.mu.Unlock()
		if !due || limit <= 0 {
			return nil
		}
		claims, err := l.r.o.Store.ClaimTriggers(ctx, l.r.o.RunID, limit)
		if err != nil {
			return err
		}
		l.noteClaimed(claims, len(claims) == limit)
		for _, c := range claims {
			l.r.events.watch(c.RunID)
			l.r.work.Go(func() { l.handle(ctx, c) })
		}
		if len(claims) < limit {
			return l.claimBatches(ctx, limit-len(claims))
		}
	}
}

// claimBatches claims the batches of judges' requests that are due.
func (l *triggerLoop) claimBatches(ctx context.Context, limit int) error {
	claims, err := l.r.o.Store.ClaimBatches(ctx, l.r.o.RunID, limit)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = l.due || len(claims) == limit
	for _, c := range claims {
		l.countClaim(c.ID)
		l.requests[c.BatchToken] = true
		l.r.work.Go(func() {
			err := l.batches.handle(ctx, c)
			l.done(c.RunID, "batch "+c.ID, err, func() { delete(l.requests, c.BatchToken) })
			l.r.o.Store.Forget(store.Tokens{Batches: []store.BatchToken{c.BatchToken}})
		})
	}
	return nil
}

// countClaim notes that a trigger has been asked in this round. l.mu is held.
func (l *triggerLoop) countClaim(id string) {
	l.roundDone = l.roundDone || l.askedThisRound[id]
	if l.askedThisRound != nil {
		l.askedThisRound[id] = true
	}
}

func (l *triggerLoop) noteClaimed(claims []store.TriggerClaim, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = more
	l.nextDue, l.outdated = time.Time{}, true
	for _, c := range claims {
		l.countClaim(c.TriggerID)
		l.triggers[c.TriggerToken] = true
	}
}

// handle handles a claimed trigger. One that was delivered in the meantime needs nothing.
func (l *triggerLoop) handle(ctx context.Context, c store.TriggerClaim) {
	err := l.r.guard.handle(ctx, c, l.handler.handle)
	l.done(c.RunID, "trigger "+c.TriggerID, err, func() { delete(l.triggers, c.TriggerToken) })
	l.r.o.Store.Forget(store.Tokens{Triggers: []store.TriggerToken{c.TriggerToken}})
}

// done is called when a claim has been handled. forget removes the claim.
func (l *triggerLoop) done(runID, what string, err error, forget func()) {
	l.mu.Lock()
	forget()
	l.outdated = true
	l.mu.Unlock()
	if err != nil {
		l.r.fail(fmt.Errorf("%s: %w", what, err))
	}
	l.r.changed(runID)
}

// lookAhead asks the store when the next trigger is due, if that may have changed.
func (l *triggerLoop) lookAhead(ctx context.Context) error {
	l.mu.Lock()
	outdated := l.outdated
	l.outdated = false
	l.mu.Unlock()
	if !outdated {
		return nil
	}
	next, err := l.r.o.Store.NextDue(ctx, l.r.o.RunID)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextDue = next
	return err
}

// nextCheck says how long to wait for the next trigger, whether any is being handled, and whether
// the round is done.
func (l *triggerLoop) nextCheck(busy bool) (pause time.Duration, checking, roundDone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause = poll
	switch {
	case l.checksInFlight() >= maxChecks || l.roundDone && !busy: // the handler that finishes first wakes us
	case l.due:
		pause = 0
	case !l.nextDue.IsZero():
		pause = l.nextDue.Sub(l.r.o.Now())
	}
	return pause, l.checksInFlight() > 0, l.roundDone
}

// newRound begins another round. next is when the next trigger is due.
func (l *triggerLoop) newRound(due bool, next time.Time) {
	l.endRound()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = l.due || due
	l.nextDue = next
}

// rolloutEnded is called when the work on a rollout has ended. Its new triggers have had no turn
// yet.
func (l *triggerLoop) rolloutEnded() {
	l.endRound()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outdated = true
}

// endRound forgets which triggers have been asked.
func (l *triggerLoop) endRound() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.askedThisRound)
	l.roundDone = false
}
