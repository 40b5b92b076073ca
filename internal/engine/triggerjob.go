package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// The bounds of the pause between a failed call of a source and the next.
const (
	firstRetry = 2 * time.Second
	lastRetry  = time.Minute
)

// The bounds of how long after the deadline an unreachable source is asked again.
const (
	leastGrace = 10 * time.Second
	mostGrace  = 5 * time.Minute
)

// firstCheck is how long after its start a job is checked for the first time.
const firstCheck = 250 * time.Millisecond

// triggerHandler starts, checks and cancels the jobs of claimed triggers at their sources.
type triggerHandler struct {
	o    *Options
	runs *runCache
	// jobsChanged is called when a job must be cancelled.
	jobsChanged func()
}

// handle starts or checks the job of a claimed trigger, cancels it, or lets the trigger expire.
func (h *triggerHandler) handle(ctx context.Context, c store.TriggerClaim) error {
	commit := context.WithoutCancel(ctx)
	var spec wait.Spec
	if err := json.Unmarshal(c.Spec, &spec); err != nil {
		return err
	}
	run, err := h.runs.get(commit, c.RunID)
	if err != nil {
		return err
	}
	if c.Elsewhere { // it is overdue, and nobody here can check its job or tell whether it was started
		return h.expire(commit, run, c, "its job runs on "+c.Machine+", where no evalrun has asked for it in time",
			c.LastError)
	}
	source, err := run.Sources.For(c.Source, spec)
	if err != nil {
		return h.deliverFault(commit, run, c, fault.Job, err.Error())
	}
	job := wait.Job{TriggerID: c.TriggerID, RolloutID: c.RolloutID, ItemKey: c.ItemKey, Spec: spec, Checks: c.Checks,
		Since: c.CreatedAt, Until: c.Until, Deadline: run.Plan.JobDeadline(c.Deadline)}
	if h.o.WebhookURL != nil {
		if job.WebhookURL, err = h.o.WebhookURL(c.TriggerID); err != nil {
			return err
		}
	}
	if !c.StartedAt.IsZero() {
		job.Since = c.StartedAt
	}
	switch c.Action {
	case store.ActionStart, store.ActionResolve:
		return h.start(ctx, run, c, source, job)
	case store.ActionCancel:
		return h.cancel(ctx, run, c, source, job)
	}
	return h.check(ctx, run, c, source, job)
}

// start starts the job of a trigger. The intent to start it has been recorded. If a process died
// during an earlier start, or a call failed, the job may be running already; the kind of the source
// says how to find out.
func (h *triggerHandler) start(ctx context.Context, run *rollout.Run, c store.TriggerClaim, source wait.Source,
	job wait.Job) error {
	commit := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		return h.o.putBack(ctx, c, 0, c.Action == store.ActionStart)
	}
	failpoint.Hit("engine.starting")
	atMostOnce := source.StartKind() == wait.AtMostOnce
	switch {
	case c.Action == store.ActionResolve && !c.OverdueSince.IsZero():
		return h.find(ctx, run, c, source, job)
	case c.Action == store.ActionResolve && atMostOnce:
		return h.deliverFault(commit, run, c, fault.StartUnknown,
			"the job may have been started before a crash, and its source can neither tell nor start it only once")
	}
	if !c.Deadline.IsZero() && c.Deadline.Before(job.Until) {
		job.Until = c.Deadline
	}
	starting, end := grace.Outlast(ctx, h.o.StopGrace)
	defer end()
	key, err := source.Start(starting, job)
	failpoint.Hit("engine.sourceStarted." + c.Source)
	var f *fault.Fault
	switch {
	case errors.As(err, &f) && (starting.Err() == nil || atMostOnce):
		// Nobody could find out later whether this call has started the job.
		return h.deliverFault(commit, run, c, f.Category, f.Message)
	case err != nil:
		var asked *wait.RetryError
		// If the start is being resolved, an earlier call may have begun the job.
		notStarted := c.Action == store.ActionStart && (atMostOnce || errors.As(err, &asked) && asked.NotStarted)
		return h.reschedule(starting, run, c, err, notStarted)
	}
	return h.o.Store.TriggerStarted(commit, c.TriggerToken, key, firstCheck)
}

// find looks for the job of an overdue trigger, which must not be started any more. If there is a
// job, find checks it once more.
func (h *triggerHandler) find(ctx context.Context, run *rollout.Run, c store.TriggerClaim, source wait.Source,
	job wait.Job) error {
	commit := context.WithoutCancel(ctx)
	key, found, err := source.Find(ctx, job)
	var f *fault.Fault
	switch {
	case errors.Is(err, wait.ErrNoFind):
		return h.expire(commit, run, c, "whether its job was started is not known", c.LastError)
	case err != nil && ctx.Err() != nil:
		return h.o.putBack(ctx, c, 0, false)
	case errors.As(err, &f):
		return h.expire(commit, run, c, "its job could not be looked for", f.Message)
	case err != nil:
		return h.reschedule(ctx, run, c, err, false)
	case found:
		return h.o.Store.TriggerStarted(commit, c.TriggerToken, key, 0)
	}
	return h.expire(commit, run, c, "its job was not started", c.LastError)
}

// check asks the source of a job once.
func (h *triggerHandler) check(ctx context.Context, run *rollout.Run, c store.TriggerClaim, source wait.Source,
	job wait.Job) error {
	commit := context.WithoutCancel(ctx)
	if c.State == store.TriggerIntended { // it is overdue, and there is no job to check
		return h.expire(commit, run, c, "its job was not started", c.LastError)
	}
	status, err := source.Check(ctx, job)
	failpoint.Hit("engine.checked")
	switch {
	case ctx.Err() != nil && status.Fault != nil:
		return h.o.putBack(ctx, c, 0, false)
	case err != nil:
		return h.reschedule(ctx, run, c, err, false)
	case status.Done && status.Fault != nil:
		return h.deliverFault(commit, run, c, status.Fault.Category, status.Fault.Message)
	case status.Done:
		_, err := h.o.Store.Deliver(commit, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence,
			Status: store.StatusSuccessful, Payload: status.Payload, By: c.Source})
		failpoint.Hit("engine.delivered")
		return err
	case c.Action == store.ActionExpire:
		return h.expire(commit, run, c, "", "")
	}
	next := store.Never
	if status.After > 0 {
		next = status.After
	}
	if asker, ok := source.(wait.Asker); ok {
		q := questions{h, run, c, asker, job}
		if done, err := q.settle(ctx, status.Question, next); done || err != nil {
			return err
		}
	}
	return h.o.Store.TriggerPending(commit, c.TriggerToken, next)
}

// cancel tries once to cancel a job that nobody waits for.
func (h *triggerHandler) cancel(ctx context.Context, run *rollout.Run, c store.TriggerClaim, source wait.Source,
	job wait.Job) error {
	ctx, end := grace.Outlast(ctx, h.o.StopGrace)
	defer end()
	// It is not known whether the job was started, or under which key.
	if c.StartedAt.IsZero() && job.Spec.ItemKey == "" && source.StartKind() == wait.Searchable {
		key, found, err := source.Find(ctx, job)
		if err == nil && !found {
			return nil
		}
		if found {
			job.ItemKey = key
		}
	}
	if err := source.Cancel(ctx, job); err != nil {
		h.o.Logger.Warn("the job could not be cancelled",
			"trigger", c.TriggerID, "source", c.Source, "error", run.Redact.String(err.Error()))
	}
	return nil
}

// reschedule puts a trigger back after a failed call of its source that may succeed later. It keeps
// the number of requests for a trigger bounded: each pause is twice the one before, and after its
// deadline a trigger gets only its grace.
func (h *triggerHandler) reschedule(ctx context.Context, run *rollout.Run, c store.TriggerClaim, err error,
	notStarted bool) error {
	commit := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		return h.o.putBack(ctx, c, 0, notStarted)
	}
	message := run.Redact.String(err.Error())
	pause := retry.Backoff(firstRetry, lastRetry, c.Failures)
	var asked *wait.RetryError
	switch left := c.OverdueSince.Add(overdueGrace(c)).Sub(h.o.Now()); {
	case !c.OverdueSince.IsZero() && left <= 0:
		return h.expire(commit, run, c, "its source could not be asked", message)
	case !c.OverdueSince.IsZero():
		pause = min(pause, left) // whatever the source's interval is, there is no time left after that
	case errors.As(err, &asked):
		pause = max(pause, asked.After)
	}
	h.o.Logger.Warn("a source could not be asked; it will be again",
		"trigger", c.TriggerID, "source", c.Source, "action", c.Action, "after", pause, "error", message)
	return h.o.Store.TriggerFailed(commit, c.TriggerToken, pause,
		store.TriggerFailure{Error: message, NotStarted: notStarted})
}

// overdueGrace is how long after the deadline of a trigger its unreachable source is asked again.
// It is as long as the trigger had until the deadline, within bounds.
func overdueGrace(c store.TriggerClaim) time.Duration {
	return min(max(c.Deadline.Sub(c.CreatedAt), leastGrace), mostGrace)
}

// expire ends the wait for an overdue trigger. what says more about it, and cause is an error that
// explains it; both may be empty.
func (h *triggerHandler) expire(ctx context.Context, run *rollout.Run, c store.TriggerClaim, what, cause string) error {
	limit, category := "limits.suspendTimeout", fault.SuspendTimeout
	if c.EvaluatorID != "" { // the evaluator then has no score, which is no fault of the rollout
		limit, category = "limits.scoreTimeout", fault.JudgeExpired
	}
	message := fmt.Sprintf("nothing arrived for %s %s until %s (%s)", c.Type, c.ItemKey,
		c.Deadline.Format(time.RFC3339), limit)
	if what != "" {
		message += "; " + what
	}
	if cause != "" {
		message += ": " + cause
	}
	_, err := h.o.Store.Deliver(ctx, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence,
		Status: store.StatusExpired, By: limit,
		Fault: fault.New(category, run.Redact.String(message))})
	h.jobsChanged() // its job must be cancelled
	return err
}

func (h *triggerHandler) deliverFault(ctx context.Context, run *rollout.Run, c store.TriggerClaim,
	category fault.Category, message string) error {
	_, err := h.o.Store.Deliver(ctx, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence,
		Status: store.StatusFaulted, By: c.Source,
		Fault: fault.New(category, run.Redact.String(message))})
	return err
}

// A stop says nothing about a source. The context of a handler ends when the process is to stop.
// From then on only a result of a source counts as final, since a fault may come from the context's
// own error. Such a trigger is put back as it was, and the next process that claims it asks again.
// A request that changes something at a source is given a little time to be answered, because
// otherwise nobody could tell whether it has changed it.

// putBack leaves a claimed trigger to the next process after a time, as if it had not been claimed.
// notStarted says that its job was certainly not started.
func (o *Options) putBack(ctx context.Context, c store.TriggerClaim, after time.Duration, notStarted bool) error {
	return o.Store.TriggerFailed(context.WithoutCancel(ctx), c.TriggerToken, after,
		store.TriggerFailure{NotTried: true, NotStarted: notStarted})
}
