package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
)

// delivering is how many answers of a batch are delivered at once; their commits are grouped.
const delivering = 32

// batchHandler starts, checks and cancels claimed batches of requests at their providers.
// However many rollouts wait for a batch, one check is made at a time.
type batchHandler struct {
	o    *Options
	runs *runCache
}

// handle starts a batch, checks it, or cancels it. The error ends the process.
func (h *batchHandler) handle(ctx context.Context, c store.BatchClaim) error {
	commit := context.WithoutCancel(ctx)
	var failed error
	err := protect(func() error {
		run, err := h.runs.get(commit, c.RunID)
		if err == nil {
			err = h.act(ctx, run, c)
		}
		if errors.Is(err, store.ErrFenced) || store.IsBroken(err) || h.o.Store.InPlace() != nil {
			return err
		}
		failed = err
		return nil
	})
	var panicked *panicError
	if errors.As(err, &panicked) {
		failed, err = err, nil
	}
	if err != nil || failed == nil || c.Action == store.ActionCancel {
		return unlessFenced(err)
	}
	pause := retry.Backoff(firstRetry, lastRetry, c.Failures)
	var said *model.BatchError
	if errors.As(failed, &said) {
		pause = max(pause, said.After)
	}
	message := h.runs.redactor(commit, c.RunID).String(failed.Error())
	if ctx.Err() != nil {
		pause, message = 0, "" // we broke the call off, which says nothing about the provider
	}
	h.o.Logger.Warn("a batch could not be started or asked for; it will be again",
		"batch", c.ID, "provider", c.Provider, "action", c.Action, "after", pause, "error", message)
	return unlessFenced(h.o.Store.BatchPending(commit, c.BatchToken, pause, message))
}

// asked is a claimed batch with its provider.
type asked struct {
	provider *model.Batches
	batching model.Batching
	store.BatchClaim
	batch model.Batch
}

// act acts on a batch at its provider.
func (h *batchHandler) act(ctx context.Context, run *rollout.Run, c store.BatchClaim) error {
	b := model.Batch{ID: c.ID, External: c.ExternalID, Since: c.FirstStart, Size: c.Requests}
	provider, batching, err := run.Batches(c.Provider)
	var gone *model.BatchError
	switch {
	case errors.As(err, &gone) && gone.Final:
		return h.end(context.WithoutCancel(ctx), c, b.External, gone.Message)
	case err != nil:
		return err
	}
	a := asked{provider, batching, c, b}
	switch c.Action {
	case store.ActionStart, store.ActionResolve:
		return h.start(ctx, a)
	case store.ActionCancel:
		return h.cancel(ctx, run, a)
	}
	return h.check(ctx, a)
}

// start starts a batch. The intent to start it has been recorded. If an earlier call may have
// started it, start asks the provider first. A batch that the provider refuses is ended, and its
// requests are sent one by one.
func (h *batchHandler) start(ctx context.Context, a asked) error {
	commit := context.WithoutCancel(ctx)
	b := a.batch
	requests, _, err := h.waiting(commit, b.ID)
	if err != nil {
		return err
	}
	if b.Others, err = h.o.Store.StartedBatches(commit); err != nil {
		return err
	}
	b.Size = len(requests)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, endCall := grace.Outlast(ctx, h.o.StopGrace)
	defer endCall()
	failpoint.Hit("engine.batchStarting")
	id, err := a.provider.Start(ctx, b, requests, a.Action == store.ActionResolve)
	failpoint.Hit("engine.batchStarted")
	var refused *model.BatchError
	if errors.As(err, &refused) && refused.Final {
		return h.end(commit, a.BatchClaim, "", refused.Message)
	}
	if err != nil {
		return err
	}
	return h.o.Store.BatchStarted(commit, a.BatchToken, id, a.batching.Interval)
}

// check asks the provider once about a batch, and delivers the answers if the batch is done.
func (h *batchHandler) check(ctx context.Context, a asked) error {
	commit := context.WithoutCancel(ctx)
	c, b := a.BatchClaim, a.batch
	status, err := a.provider.Check(ctx, b)
	failpoint.Hit("engine.batchChecked")
	var gone *model.BatchError
	switch {
	case errors.As(err, &gone) && gone.Final:
		return h.end(commit, c, b.External, gone.Message)
	case err != nil:
		return err
	case !status.Ended:
		return h.o.Store.BatchPending(commit, c.BatchToken, a.batching.PauseBefore(c.Checks), "")
	}
	_, waiting, err := h.waiting(commit, c.ID)
	if err != nil {
		return err
	}
	d := h.newDeliveries(commit, c)
	err = a.provider.Answers(ctx, b, status, func(customID string, payload json.RawMessage) error {
		if err := d.answer(waiting[customID], payload); err != nil {
			return err
		}
		return d.failure()
	})
	if err = errors.Join(d.close(), err); err != nil {
		return err
	}
	failpoint.Hit("engine.batchDelivered")
	return h.end(commit, c, b.External, "the batch has ended without an answer ("+status.Why+")")
}

// end delivers to the triggers that still wait why there is no answer, and ends the batch.
func (h *batchHandler) end(ctx context.Context, c store.BatchClaim, external, why string) error {
	_, waiting, err := h.waiting(ctx, c.ID)
	if err != nil {
		return err
	}
	d := h.newDeliveries(ctx, c)
	payload := model.Unanswered(external, h.runs.redactor(ctx, c.RunID).String(why))
	for _, equal := range waiting {
		if err := d.answer(equal, payload); err != nil {
			return errors.Join(d.close(), err)
		}
	}
	if err := d.close(); err != nil {
		return err
	}
	return h.o.Store.BatchEnded(ctx, c.BatchToken)
}

// cancel tries once to end a batch that nobody waits for.
func (h *batchHandler) cancel(ctx context.Context, run *rollout.Run, a asked) (err error) {
	b := a.batch
	ctx, end := grace.Outlast(ctx, h.o.StopGrace)
	defer end()
	if b.External == "" { // it may have been started
		others, err := h.o.Store.StartedBatches(ctx)
		if err != nil {
			return err
		}
		b.Others = others
		b.External, err = a.provider.Find(ctx, b)
		if err != nil || b.External == "" {
			return nil //nolint:nilerr // nobody waits for it
		}
	}
	if err := a.provider.Cancel(ctx, b); err != nil {
		h.o.Logger.Warn("the batch could not be cancelled",
			"batch", b.External, "provider", a.Provider, "error", run.Redact.String(err.Error()))
	}
	return nil
}

// waiting returns the requests of a batch that triggers wait for, as they are sent, and those that
// wait for each request by its custom id.
func (h *batchHandler) waiting(ctx context.Context, batchID string) (
	requests []model.BatchRequest, waiting map[string][]store.WaitingRequest, err error) {
	waiting = map[string][]store.WaitingRequest{}
	err = h.o.Store.WaitingRequests(ctx, batchID, func(r store.WaitingRequest) error {
		if len(waiting[r.CustomID]) == 0 {
			requests = append(requests, model.BatchRequest{CustomID: r.CustomID, Body: r.Body})
		}
		r.Body = nil // the body is sent once
		waiting[r.CustomID] = append(waiting[r.CustomID], r)
		return nil
	})
	return requests, waiting, err
}

// deliveries delivers answers, several at once.
type deliveries struct {
	h      *batchHandler
	ctx    context.Context
	source string
	places chan struct{}
	failed chan error
}

func (h *batchHandler) newDeliveries(ctx context.Context, c store.BatchClaim) *deliveries {
	return &deliveries{h: h, ctx: ctx, source: c.Provider + " batch", places: make(chan struct{}, delivering),
		failed: make(chan error, 1)}
}

// answer delivers one answer to all triggers that wait for equal requests.
func (d *deliveries) answer(equal []store.WaitingRequest, payload json.RawMessage) error {
	for _, r := range equal {
		said := payload
		if r.Merged {
			var err error
			if said, err = model.MergedAnswer(payload); err != nil {
				return err
			}
		}
		d.deliver(r.TriggerID, said)
	}
	return nil
}

// deliver gives an answer to its trigger. A trigger that has an answer already, or that nobody
// waits for any more, stays as it is.
func (d *deliveries) deliver(triggerID string, payload json.RawMessage) {
	d.places <- struct{}{}
	go func() {
		defer func() { <-d.places }()
		_, err := d.h.o.Store.Deliver(d.ctx, store.Delivery{TriggerID: triggerID, Status: store.StatusSuccessful,
			Payload: payload, By: d.source})
		failpoint.Hit("engine.batchAnswer")
		if err != nil {
			select {
			case d.failed <- err:
			default:
			}
		}
	}()
}

// failure is the first error so far.
func (d *deliveries) failure() error {
	select {
	case err := <-d.failed:
		d.failed <- err
		return err
	default:
		return nil
	}
}

// close waits for all deliveries.
func (d *deliveries) close() error {
	for range delivering {
		d.places <- struct{}{}
	}
	return d.failure()
}
