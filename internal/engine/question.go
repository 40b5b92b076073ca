package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// askAgain is how long after a job was told an answer the same question counts as asked again. A
// job takes a moment to notice the answer, and until then it seems to ask.
const askAgain = time.Minute

// playAgain is how soon after a question whose answer is played the job is asked again.
const playAgain = 10 * time.Millisecond

// questions matches the questions of the job of a claimed trigger with the answers of people.
type questions struct {
	h      *triggerHandler
	run    *rollout.Run
	c      store.TriggerClaim
	source wait.Asker
	job    wait.Job
}

// settle is called after a check. now is the job's question, nil if it asks none. done says that
// the claim has ended.
func (q questions) settle(ctx context.Context, now *wait.Question, next time.Duration) (done bool, err error) {
	commit := context.WithoutCancel(ctx)
	asked, err := q.h.o.Store.Questions(commit, q.c.TriggerID)
	if err != nil || now == nil && len(asked) == 0 {
		return false, err
	}
	if now == nil {
		return false, q.end(commit, asked)
	}
	n, err := q.trigger(*now)
	if err != nil {
		return false, err
	}
	if n.Source == wait.SourceFixed {
		next = min(next, playAgain)
	}
	if len(asked) == 0 {
		return true, q.h.o.Store.Ask(commit, q.c.TriggerToken, n, next)
	}
	last := asked[len(asked)-1]
	same := q.digestOf(last) == n.Digest
	switch reported := !last.StartedAt.IsZero(); {
	case reported && same && q.h.o.Now().Sub(last.StartedAt) < askAgain:
		return false, nil
	case same && last.State.IsOpen() && last.Source == wait.SourceFixed:
		return true, q.play(commit, last)
	case reported || last.State.IsOpen():
		return true, q.h.o.Store.Ask(commit, q.c.TriggerToken, n, next)
	case !same:
		if err := q.end(commit, asked); err != nil {
			return false, err
		}
		return true, q.h.o.Store.Ask(commit, q.c.TriggerToken, n, next)
	case last.State == store.TriggerFired:
		return q.answer(ctx, last)
	}
	return true, q.refuse(ctx, last)
}

// play delivers what is played for an open question, once it is due.
func (q questions) play(ctx context.Context, asked store.Trigger) error {
	var spec wait.Spec
	if err := json.Unmarshal(asked.Spec, &spec); err != nil {
		return err
	}
	source, err := q.run.Sources.For(asked.Source, spec)
	if err != nil {
		return err
	}
	status, err := source.Check(ctx, wait.Job{TriggerID: asked.ID, Spec: spec, Since: asked.CreatedAt})
	if err != nil {
		return err
	}
	next := status.After
	if status.Done {
		next = 0
		d := store.Delivery{TriggerID: asked.ID, Status: store.StatusSuccessful, Payload: status.Payload, By: asked.Source}
		if status.Fault != nil {
			d.Status, d.Fault = store.StatusFaulted, status.Fault
		}
		if _, err := q.h.o.Store.Deliver(ctx, d); err != nil {
			return err
		}
	}
	return q.h.o.Store.TriggerPending(ctx, q.c.TriggerToken, next)
}

// trigger is the trigger that waits for the answer to a question.
func (q questions) trigger(asked wait.Question) (store.NewTrigger, error) {
	spec, err := asked.Spec()
	if err != nil {
		return store.NewTrigger{}, err
	}
	if shown := q.run.Redact.JSON(spec.Payload); !bytes.Equal(shown, spec.Payload) {
		spec.Shown = shown
	}
	spec.ShownID = q.job.Spec.ShownID // the question is shown under the job's id
	source := wait.SourceExternal
	if spec.Played = q.run.Plan.Answers.For(wait.AskedQuestion{EvaluationID: q.c.EvaluationID,
		EvaluationName: q.c.EvaluationName, InterruptID: q.c.InterruptID, Spec: spec}); spec.Played != nil {
		source = wait.SourceFixed
	}
	data, err := json.Marshal(spec)
	return store.NewTrigger{
		Type: string(spec.Type), Name: spec.Name, Source: source, KeyPrefix: "task-", Spec: data,
		Digest: spec.Digest(),
	}, err
}

func (q questions) digestOf(t store.Trigger) string {
	var spec wait.Spec
	_ = json.Unmarshal(t.Spec, &spec) // the store keeps only marshalled specs
	return spec.Digest()
}

// answer gives the job the answer to its question.
func (q questions) answer(ctx context.Context, asked store.Trigger) (done bool, err error) {
	failpoint.Hit("engine.answering")
	ctx, end := grace.Outlast(ctx, q.h.o.StopGrace)
	defer end()
	err = q.source.Answer(ctx, q.job, wait.Answer{ID: asked.ID, Payload: asked.Payload})
	failpoint.Hit("engine.answered")
	var f *fault.Fault
	switch {
	case errors.Is(err, wait.ErrNotTaken): // a question that it still asks is asked anew
		q.h.o.Logger.Warn("an answer was not taken",
			"question", asked.ID, "trigger", q.c.TriggerID, "source", q.c.Source, "error", q.run.Redact.String(err.Error()))
		return false, q.h.o.Store.EndQuestions(context.WithoutCancel(ctx), q.c.TriggerID)
	case errors.As(err, &f) && ctx.Err() == nil:
		return true, q.h.deliverFault(context.WithoutCancel(ctx), q.run, q.c, f.Category, f.Message)
	case err != nil:
		return true, q.h.reschedule(ctx, q.run, q.c, err, false)
	}
	commit := context.WithoutCancel(ctx)
	if err := q.h.o.Store.QuestionTold(commit, asked.ID); err != nil {
		return false, err
	}
	return true, q.h.o.Store.TriggerPending(commit, q.c.TriggerToken, firstCheck)
}

// refuse ends a job whose question was delivered as failed or cancelled: nobody will answer it.
func (q questions) refuse(ctx context.Context, asked store.Trigger) error {
	if err := q.h.cancel(ctx, q.run, q.c, q.source, q.job); err != nil {
		return err
	}
	message := "what the job asked was " + string(asked.Status)
	if asked.Fault != nil && asked.Fault.Message != "" {
		message += ": " + asked.Fault.Message
	}
	return q.h.deliverFault(context.WithoutCancel(ctx), q.run, q.c, fault.Job, message)
}

// end ends the questions that the job has withdrawn.
func (q questions) end(ctx context.Context, asked []store.Trigger) error {
	for _, g := range asked {
		if !g.State.IsOpen() && g.StartedAt.IsZero() {
			q.h.o.Logger.Warn("an answer came too late: the job had gone on without it",
				"question", g.ID, "trigger", q.c.TriggerID, "source", q.c.Source)
		}
	}
	return q.h.o.Store.EndQuestions(ctx, q.c.TriggerID)
}
