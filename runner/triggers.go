package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/failpoint"
	"github.com/evalrun/evalrun/store"
	"github.com/evalrun/evalrun/trigger"
)

// Between a failed call of a source and the next.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// firstCheck is how long after its start a job is asked for the first time.
const firstCheck = 250 * time.Millisecond

// claimTriggers acts on the triggers that are due, a few at a time.
func (r *Runner) claimTriggers(ctx context.Context) error {
	for {
		r.mu.Lock()
		due := r.triggersDue || (!r.nextDue.IsZero() && !r.nextDue.After(r.o.Now()))
		limit := watching - r.asking
		due = due && (!r.lapped || r.inFlight > 0)
		r.mu.Unlock()
		if !due || limit <= 0 {
			return nil
		}
		claims, err := r.o.Store.ClaimTriggers(ctx, r.o.RunID, limit)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.triggersDue = len(claims) == limit
		r.nextDue = time.Time{} // outlook finds the next one
		r.asking += len(claims)
		for _, c := range claims {
			r.lapped = r.lapped || r.asked[c.TriggerID]
			if r.asked != nil {
				r.asked[c.TriggerID] = true
			}
		}
		r.mu.Unlock()
		for _, c := range claims {
			r.event.watch(c.RunID)
			r.work.Go(func() { r.act(ctx, c) })
		}
		if len(claims) < limit {
			return nil
		}
	}
}

// act does what a claimed trigger needs. A trigger that was delivered in the meantime needs nothing any more.
func (r *Runner) act(ctx context.Context, c store.TriggerClaim) {
	err := r.actSafely(ctx, c)
	r.mu.Lock()
	r.asking--
	if err != nil && r.failure == nil {
		r.failure = fmt.Errorf("trigger %s: %w", c.TriggerID, err)
	}
	r.mu.Unlock()
	r.changed()
}

func (r *Runner) tryAct(ctx context.Context, c store.TriggerClaim) error {
	commit := context.WithoutCancel(ctx)
	var spec trigger.Spec
	if err := json.Unmarshal(c.Spec, &spec); err != nil {
		return err
	}
	run, err := r.runs.get(commit, c.RunID)
	if err != nil {
		return err
	}
	source, err := run.sources.For(c.Source, spec)
	if err != nil {
		return r.deliverFault(commit, run, c, agent.FaultJob, err.Error())
	}
	job := trigger.Pending{TriggerID: c.TriggerID, RolloutID: c.RolloutID, ItemKey: c.ItemKey, Spec: spec, Checks: c.Checks, Since: c.CreatedAt, Until: c.Until}
	if !c.StartedAt.IsZero() {
		job.Since = c.StartedAt
	}
	switch c.Action {
	case store.ActionStart, store.ActionResolve:
		return r.start(ctx, run, c, source, job)
	case store.ActionCancel:
		if err := source.Cancel(ctx, job); err != nil {
			r.o.Logger.Warn("the job could not be cancelled", "trigger", c.TriggerID, "source", c.Source, "error", run.redact.String(err.Error()))
		}
		return nil
	}
	return r.check(ctx, run, c, source, job)
}

// start starts the job of a trigger whose intent to do so is recorded. If a process died over it before, or a call failed, the job may
// have been started: the kind of the source says how to find out.
func (r *Runner) start(ctx context.Context, run *activeRun, c store.TriggerClaim, source trigger.Source, job trigger.Pending) error {
	commit := context.WithoutCancel(ctx)
	failpoint.Hit("runner.starting")
	if c.Action == store.ActionResolve {
		switch source.StartKind() {
		case trigger.AtMostOnce:
			return r.deliverFault(commit, run, c, agent.FaultStartUnknown,
				"the job may have been started before a crash, and its source can neither tell nor start it only once")
		case trigger.Searchable:
			key, found, err := source.Find(ctx, job)
			if err != nil {
				return r.later(ctx, run, c, err)
			}
			if found {
				return r.o.Store.TriggerStarted(commit, c.TriggerToken, key, r.soon())
			}
		}
	}
	key, err := source.Start(ctx, job)
	failpoint.Hit("runner.sourceStarted." + c.Source)
	var fault *trigger.Fault
	switch {
	case errors.As(err, &fault):
		return r.deliverFault(commit, run, c, agent.Category(fault.Category), fault.Message)
	case err != nil:
		return r.later(ctx, run, c, err)
	}
	return r.o.Store.TriggerStarted(commit, c.TriggerToken, key, r.soon())
}

func (r *Runner) soon() time.Time { return r.o.Now().Add(firstCheck) }

// check asks a source once.
func (r *Runner) check(ctx context.Context, run *activeRun, c store.TriggerClaim, source trigger.Source, job trigger.Pending) error {
	commit := context.WithoutCancel(ctx)
	status, err := source.Check(ctx, job)
	failpoint.Hit("runner.checked")
	switch {
	case err != nil && ctx.Err() != nil:
		return r.later(ctx, run, c, err) // broken off: that says nothing of the job
	case err == nil && status.Done && status.Fault != nil:
		return r.deliverFault(commit, run, c, agent.Category(status.Fault.Category), status.Fault.Message)
	case err == nil && status.Done:
		_, err := r.o.Store.Deliver(commit, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence, Status: store.StatusSuccessful, Payload: status.Payload, By: c.Source})
		failpoint.Hit("runner.delivered")
		return err
	case c.Action == store.ActionExpire:
		_, err := r.o.Store.Deliver(commit, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence, Status: store.StatusExpired, By: "limits.suspendTimeout", Fault: &store.Fault{
			Category: string(agent.FaultSuspendTimeout),
			Message:  fmt.Sprintf("nothing arrived for %s %s until %s (limits.suspendTimeout)", c.Type, c.ItemKey, c.Deadline.Format(time.RFC3339)),
		}})
		return err
	case err != nil:
		return r.later(ctx, run, c, err)
	}
	next := time.Time{}
	if status.After > 0 {
		next = r.o.Now().Add(status.After)
	}
	return r.o.Store.TriggerPending(commit, c.TriggerToken, next)
}

// later puts a trigger back after a call that failed and may succeed another time.
func (r *Runner) later(ctx context.Context, run *activeRun, c store.TriggerClaim, err error) error {
	wait := backoff(firstRetry, lastRetry, c.Attempts+c.Checks-1)
	var retry *trigger.RetryError
	if errors.As(err, &retry) && retry.After > 0 {
		wait = retry.After
	}
	if ctx.Err() != nil {
		wait = 0 // broken off by us
	} else {
		r.o.Logger.Warn("a source could not be asked; it will be again", "trigger", c.TriggerID, "source", c.Source, "action", c.Action,
			"after", wait, "error", run.redact.String(err.Error()))
	}
	return r.o.Store.TriggerPending(context.WithoutCancel(ctx), c.TriggerToken, r.o.Now().Add(wait))
}

func (r *Runner) deliverFault(ctx context.Context, run *activeRun, c store.TriggerClaim, category agent.Category, message string) error {
	_, err := r.o.Store.Deliver(ctx, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence, Status: store.StatusFaulted, By: c.Source,
		Fault: &store.Fault{Category: string(category), Message: run.redact.String(message)}})
	return err
}
