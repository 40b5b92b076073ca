package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// letters writes the messages of notifications.
type letters struct {
	s *Store
	o Options

	mu sync.Mutex
	// run is the run of the last message, with its plan and redactor: many messages are about the same
	// run.
	run  string
	plan plans.Plan
	red  *redact.Redactor
}

// planOf returns the plan of a run, and the redactor for messages about it.
func (l *letters) planOf(ctx context.Context, runID string) (plans.Plan, *redact.Redactor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == runID {
		return l.plan, l.red, nil
	}
	plan, err := readPlan(ctx, l.s.st, runID)
	if err != nil {
		return plan, nil, err
	}
	secrets := l.o.Variables.secrets(plan.Env...)
	for _, name := range l.o.Notifications.Targets.Variables() {
		if value, ok := l.o.Variables.resolve(name); ok {
			secrets[name] = value
		}
	}
	l.run, l.plan, l.red = runID, plan, plan.Redactor(secrets, l.o.Variables.resolve)
	return l.plan, l.red, nil
}

// parcel makes the parcel that is sent for a notification.
func (l *letters) parcel(ctx context.Context, n store.Notification) (p notify.Parcel, err error) {
	plan, red, err := l.planOf(ctx, n.RunID)
	p.Redact, p.Resolve = red, l.o.Variables.resolve
	switch {
	case errors.Is(err, plans.ErrLater):
		return p, fmt.Errorf("%w: %w", notify.ErrNotHere, err)
	case err != nil:
		return p, err
	}
	var found bool
	if n.OfRun {
		p.Target, found = plan.Notify.Find(n.Target)
		dir, err := os.Getwd()
		if err != nil {
			return p, err
		}
		if p.Dir, _, err = plan.OpenBaseDir(ctx, l.s.st, n.RunID, dir); err != nil {
			return p, err
		}
	} else {
		p.Target, found = l.o.Notifications.Targets.Find(n.Target)
		p.Dir = l.o.Notifications.Dir
	}
	if !found {
		return p, fmt.Errorf("%w: it does not know the target", notify.ErrNotHere)
	}
	for _, name := range (notify.Targets{p.Target}).Variables() {
		if _, ok := p.Resolve(name); !ok {
			return p, fmt.Errorf("%w: notify %s needs ${%s}, which is not set", notify.ErrNotHere, p.Target.Name(), name)
		}
	}
	e, err := eventOf(ctx, l.s.st, n)
	if err != nil {
		return p, err
	}
	p.Messages, err = l.messages(ctx, plan, red, e)
	return p, err
}

// messages returns the messages of an event: that a rollout waits, what a person is asked, or that
// the run is final or was scored again. They are the same whenever they are made.
func (l *letters) messages(ctx context.Context, plan plans.Plan, red *redact.Redactor,
	e store.Event) (out []notify.Message, err error) {
	add := func(kind notify.Kind, typ, part, subject string, about any) error {
		data, err := json.Marshal(about)
		if err != nil {
			return err
		}
		out = append(out, notify.Message{ID: notify.MessageID(e.RunID, e.Seq, part), Kind: kind,
			Source: "/stores/" + l.s.ID() + "/runs/" + e.RunID, Subject: subject, Type: typ, Time: e.Time, Data: red.JSON(data)})
		return nil
	}
	of := told{RunID: e.RunID, RolloutID: e.RolloutID, EvaluationSetID: plan.Set.ID, EvaluationSetName: plan.Set.Name}
	ask := func(t store.Trigger) error {
		return add(notify.Question, notify.TypeQuestion, "question/"+t.ID, t.ID,
			toldQuestion{of.with(t), newToldTrigger(t), newTrigger(t).Payload})
	}
	switch e.Type {
	case store.RunFinished:
		about, err := l.finished(ctx, plan, red, of)
		if err != nil {
			return nil, err
		}
		return out, add(notify.Finished, notify.TypeFinished, "finished", "", about)
	case store.RunRescored:
		var about toldRescored
		if err := json.Unmarshal(e.Data, &about.Rescoring); err != nil {
			return nil, err
		}
		if about.toldFinished, err = l.finished(ctx, plan, red, of); err != nil {
			return nil, err
		}
		return out, add(notify.Rescored, notify.TypeRescored, "rescored", "", about)
	case store.QuestionAsked:
		var data struct{ TriggerID string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return nil, err
		}
		t, err := l.s.st.Trigger(ctx, data.TriggerID)
		if err != nil {
			return nil, err
		}
		return out, ask(t)
	}
	var data struct {
		Segment  int
		Triggers []struct{ TriggerID string }
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil, err
	}
	var asked []store.Trigger
	about := toldSuspended{told: of, Segment: data.Segment, Triggers: []toldTrigger{}}
	for _, one := range data.Triggers {
		t, err := l.s.st.Trigger(ctx, one.TriggerID)
		if err != nil {
			return nil, err
		}
		about.told, about.Triggers = of.with(t), append(about.Triggers, newToldTrigger(t))
		isNew := t.Segment == data.Segment
		if t.EvaluatorID != "" {
			isNew = !t.CreatedAt.Before(e.Time)
		}
		if t.Type == string(wait.TypeTask) && t.Source != wait.SourceFixed && isNew { // others were reported before
			asked = append(asked, t)
		}
	}
	typ := notify.TypeSuspended
	if e.Type == store.RolloutScoring {
		typ = notify.TypeScoring
	}
	if err := add(notify.Suspended, typ, "suspended", e.RolloutID, about); err != nil {
		return nil, err
	}
	for _, t := range asked {
		if err := ask(t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// finished returns the message about how a run has ended.
func (l *letters) finished(ctx context.Context, plan plans.Plan, red *redact.Redactor,
	of told) (out toldFinished, err error) {
	out.told = of
	j, err := planned{st: l.s.st, runID: of.RunID, plan: plan, red: red}.judge(ctx, Accept{})
	if err != nil {
		return out, err
	}
	out.Verdict, out.Reason = j.Verdict.String(), j.Reason
	return out, report.FromStore(ctx, l.s.st, of.RunID, red, func(r *report.Report) error {
		out.Status, out.Summary = r.Status, r.Summary
		return nil
	})
}

// told is the part that all messages share.
type told struct {
	RunID             string `json:"runId"`
	EvaluationSetID   string `json:"evaluationSetId"`
	EvaluationSetName string `json:"evaluationSetName"`
	RolloutID         string `json:"rolloutId,omitempty"`
	EvaluationID      string `json:"evaluationId,omitempty"`
	EvaluationName    string `json:"evaluationName,omitempty"`
}

func (t told) with(g store.Trigger) told {
	t.RolloutID, t.EvaluationID, t.EvaluationName = g.RolloutID, g.EvaluationID, g.EvaluationName
	return t
}

type toldSuspended struct {
	told
	// Segment is 0 if the evaluators wait.
	Segment  int           `json:"segment,omitempty"`
	Triggers []toldTrigger `json:"triggers"`
}

type toldQuestion struct {
	told
	Trigger toldTrigger     `json:"trigger"`
	Payload json.RawMessage `json:"payload"`
}

type toldFinished struct {
	told
	Status schemas.Status `json:"status"`
	// Verdict is the one by the run's own thresholds, with no failures allowed.
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Summary schemas.Summary `json:"summary"`
}

type toldRescored struct {
	toldFinished
	Rescoring schemas.RunRescored `json:"rescoring"`
}

// toldTrigger describes a trigger that waits.
type toldTrigger struct {
	TriggerID   string     `json:"triggerId"`
	InterruptID string     `json:"interruptId"`
	EvaluatorID string     `json:"evaluatorId,omitempty"`
	AskedBy     string     `json:"askedBy,omitempty"`
	Type        string     `json:"type"`
	Name        string     `json:"name"`
	Source      string     `json:"source"`
	ItemKey     string     `json:"itemKey"`
	Deadline    *time.Time `json:"deadline,omitempty"`
	ExpiresAt   *time.Time `json:"expiresAt,omitempty"`
}

func newToldTrigger(t store.Trigger) toldTrigger {
	shown := newTrigger(t)
	return toldTrigger{TriggerID: t.ID, InterruptID: t.ShownID(), EvaluatorID: t.EvaluatorID, AskedBy: t.AskedBy,
		Type: t.Type, Name: t.Name, Source: t.Source, ItemKey: t.ItemKey,
		Deadline: shown.Deadline, ExpiresAt: shown.ExpiresAt}
}
