package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/footprint"
	mcpsource "github.com/evalrun/evalrun/internal/gateway/source"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

const (
	// poll is how long a lost wake-up can cost; nothing polls faster.
	poll = 5 * time.Second
	// rest is how long nothing is looked at while nothing is due and the store tells of changes.
	rest = 5 * time.Minute
)

// finishing is how many rollouts may be committed and evaluated while the next agents run already;
// more where more calls of judges may be under way at once.
const finishing = 32

// dispatch hands out work until nothing is left.
func (r *Runner) dispatch(ctx context.Context, until Until) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	checks, endChecks := context.WithCancel(ctx)
	defer endChecks() // a source that does not answer cannot delay a stop for long; see stop.go
	for {
		if r.stopped(ctx) {
			return nil
		}
		full, err := r.claimRollouts(ctx)
		if err == nil {
			err = r.triggers.claim(checks, r.busy())
		}
		next := action{pause: poll}
		if err == nil && !full {
			next, err = r.nextAction(ctx, until)
		}
		if err != nil || next.done {
			return err
		}
	wait:
		timer.Reset(next.pause)
		select {
		case <-r.kick:
			if err := r.checkEnded(ctx); err != nil {
				return err
			}
			if runs := r.takeChangedRuns(); len(runs) > 0 {
				if err := r.changedElsewhere(ctx, store.WakeUp{Runs: runs}); err != nil {
					return err
				}
			}
		case up := <-r.o.Store.Wake():
			if err := r.changedElsewhere(ctx, up); err != nil {
				return err
			}
		case <-next.changed: // also of what no wake-up has told
			if err := r.changedElsewhere(ctx, store.WakeUp{Unnamed: true}); err != nil {
				return err
			}
		case <-timer.C:
			if r.rests(next) {
				if next.pause = rest; !next.due.IsZero() {
					next.pause = pauseUntil(next.due, r.o.Now())
				}
				footprint.GiveBack()
				goto wait
			}
			r.triggers.markDue()
			r.events.kickAll() // a wake-up may have been lost
		case <-r.stop:
		case <-ctx.Done():
		}
	}
}

func (r *Runner) stopped(ctx context.Context) bool {
	select {
	case <-r.stop:
		return true
	case <-ctx.Done():
		return true
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure != nil
}

// busy reports whether a rollout is being worked on.
func (r *Runner) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight > 0
}

// action says what the loop does next: it waits, or it ends.
type action struct {
	done bool
	// pause is how long it waits, at most poll.
	pause time.Duration
	// changed is closed when the store changes. Until then nothing can be done before due, or ever if
	// due is zero. It is nil if the loop must look at the store after each pause.
	changed <-chan struct{}
	due     time.Time
}

// rests reports whether there is still nothing to do. It does not ask the store, so that waiting
// costs nothing.
func (r *Runner) rests(next action) bool {
	select {
	case <-next.changed:
		return false
	default:
		return next.changed != nil && (next.due.IsZero() || r.o.Now().Before(next.due)) && r.o.Store.InPlace() == nil
	}
}

// nextAction says how long to wait for the next thing to do, or that there will be none.
func (r *Runner) nextAction(ctx context.Context, until Until) (action, error) {
	busy := r.busy()
	if busy || r.triggers.checking() {
		if err := r.triggers.lookAhead(ctx); err != nil {
			return action{}, err
		}
	}
	pause, checking, roundDone := r.triggers.nextCheck(busy)
	if busy || checking {
		return action{pause: clamp(pause)}, nil
	}
	changed := r.o.Store.Changed("")
	b, err := r.o.Store.Backlog(ctx, r.o.RunID)
	if err != nil {
		return action{}, err
	}
	r.sayHeldBack(ctx, b)
	if r.o.RunID == "" {
		b.Limited, b.Unfit = 0, 0 // who looks after all runs need not stay for what others do first
	}
	if !b.Idle() || until == UntilIdle || until == UntilDone { // the clock alone may end a run that stays; see mustStay
		changed = nil
	}
	// The last rollout to end may leave jobs to be cancelled.
	if (until == UntilFinal || until == UntilAsked) && b.Due == 0 {
		run, err := r.o.Store.Run(ctx, r.o.RunID)
		if err != nil || run.Final() {
			return action{done: true}, err
		}
	}
	if roundDone {
		b.Due = 0 // the triggers that are due again were asked in this round
	}
	b.Delayed = max(0, b.Delayed-r.postponedCount()) // this process cannot run those
	if until == UntilIdle && (b.Idle() || r.o.Concurrency == 0 && b.Due == 0) {
		if stay, err := r.mustStay(ctx); err != nil || !stay {
			return action{done: true}, err
		}
	}
	if until == UntilDone && b.Runnable == 0 && b.Due == 0 {
		return action{done: true}, nil
	}
	if until == UntilAsked && b.Idle() {
		if asked, err := r.onlyPeople(ctx); err != nil || asked {
			return action{done: asked}, err
		}
	}
	r.triggers.newRound(b.Due > 0, b.NextDue)
	if b.Runnable > 0 && r.o.Concurrency > 0 || b.Due > 0 {
		return action{}, nil
	}
	return action{pause: pauseUntil(b.NextDue, r.o.Now()), changed: changed, due: b.NextDue}, nil
}

// pauseUntil returns how long to wait until due, at most poll. A zero due is never.
func pauseUntil(due, now time.Time) time.Duration {
	if due.IsZero() {
		return poll
	}
	return clamp(due.Sub(now))
}

func clamp(d time.Duration) time.Duration { return min(max(d, time.Millisecond), poll) }

func (r *Runner) postponedCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.postponed)
}

// mustStay reports whether the runner must wait for a result that its source will forget.
func (r *Runner) mustStay(ctx context.Context) (stay bool, err error) {
	if !r.o.Stay {
		return false, nil
	}
	err = r.o.Store.Triggers(ctx, r.o.RunID, false, func(t store.Trigger) error {
		var spec wait.Spec
		if json.Unmarshal(t.Spec, &spec) != nil {
			return nil // the process that claims it finds out
		}
		if spec.ExpiresAt != nil && !stay && r.o.Now().Sub(*spec.ExpiresAt) < 2*mcpsource.AfterExpiry {
			stay = true
			if !r.staying {
				r.staying = true
				r.o.Logger.Warn("waiting for a result that its source will forget; --detach leaves it to an executor",
					"trigger", t.ID, "until", spec.ExpiresAt.Local().Format(time.DateTime))
			}
		}
		return nil
	})
	return stay, err
}

// onlyPeople reports whether the run waits only for people: for their answers, and for jobs that
// ask one a question.
func (r *Runner) onlyPeople(ctx context.Context) (bool, error) {
	jobs, asking := map[string]bool{}, map[string]bool{}
	err := r.o.Store.Triggers(ctx, r.o.RunID, false, func(t store.Trigger) error {
		switch played := t.Source == wait.SourceFixed; {
		case t.AskedBy != "":
			asking[t.AskedBy] = !played
		case played || !wait.Type(t.Type).OfPerson():
			jobs[t.ID] = true
		}
		return nil
	})
	for id := range jobs {
		if !asking[id] {
			return false, err
		}
	}
	return true, err
}

// claimRollouts starts as many rollouts as there are free slots; full says that there is none left.
func (r *Runner) claimRollouts(ctx context.Context) (full bool, err error) {
	judging := r.runs.judgesAtOnce()
	r.mu.Lock()
	limit := min(r.slots.available(r.active), r.o.Concurrency*(1+aheadPerSlot)+max(finishing, judging)-r.inFlight)
	r.mu.Unlock()
	if limit <= 0 {
		return r.o.Concurrency > 0, nil
	}
	claims, err := r.o.Store.Claim(ctx, r.o.RunID, limit)
	if err != nil {
		return false, err
	}
	leftover := r.endLeftovers(claims)
	for _, c := range claims {
		if c.TakenOver {
			r.begin(ctx, c, leftover)
		} else {
			r.begin(ctx, c, nil)
		}
	}
	return len(claims) == limit, nil
}

// endLeftovers ends the processes of rollouts that were taken over from a process that is gone.
func (r *Runner) endLeftovers(claims []store.Claim) error {
	var markers []string
	for _, c := range claims {
		if c.TakenOver {
			markers = append(markers, rollout.Marker(r.o.Store.ID(), c.RolloutID))
		}
	}
	if len(markers) == 0 {
		return nil
	}
	ended, err := sandbox.Sweep(markers...)
	if ended > 0 {
		r.o.Logger.Warn("ended processes that a crashed evalrun left behind", "processes", ended, "rollouts", markers)
	}
	return err
}

// begin starts the goroutine of one claimed rollout. leftover says why processes that an earlier
// holder left could not be ended.
func (r *Runner) begin(ctx context.Context, c store.Claim, leftover error) {
	agentCtx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.active++
	r.inFlight++
	delete(r.postponed, c.RolloutID)
	r.mu.Unlock()
	r.leases.add(c.Token, cancel)
	r.triggers.endRound()
	r.events.watch(c.RunID)
	r.events.kick(c.RunID)
	ro := rollout.New(r.host, c, &agentSlot{r: r}, leftover)
	r.work.Go(func() {
		err := r.guard.run(agentCtx, ro, c)
		cancel(nil)
		if err != nil {
			r.fail(fmt.Errorf("rollout %s (%s): %w", c.RolloutID, c.EvaluationName, err))
		}
		r.leases.remove(c.Token)
		r.o.Store.Forget(store.Tokens{Rollouts: []store.Token{c.Token}})
		r.triggers.rolloutEnded()
		r.mu.Lock()
		r.inFlight--
		why := ro.Postponed()
		if why != "" {
			r.postponed[c.RolloutID] = true
		}
		r.mu.Unlock()
		if why != "" {
			r.lack(why)
		}
		r.changed(c.RunID)
	})
}

// agentEnded lets the next agent start.
func (r *Runner) agentEnded() {
	r.mu.Lock()
	r.active--
	r.mu.Unlock()
	r.wakeUp()
}

// checkEnded lets the triggers be checked whose local jobs have said that they are done.
func (r *Runner) checkEnded(ctx context.Context) error {
	r.mu.Lock()
	ended := r.ended
	r.ended = nil
	r.mu.Unlock()
	for _, id := range ended {
		if err := r.o.Store.CheckTrigger(ctx, id); err != nil {
			return err
		}
		r.triggers.markDue()
	}
	return nil
}

// changedElsewhere reacts to commits that were not made through this runner.
func (r *Runner) changedElsewhere(ctx context.Context, up store.WakeUp) error {
	r.triggers.markDue()
	if up.Unnamed {
		r.events.kickAll()
	} else {
		r.events.kick(up.Runs...)
	}
	if len(r.leases.rollouts()) == 0 {
		return nil
	}
	return r.leases.renew(ctx) // a rollout may have been cancelled
}
