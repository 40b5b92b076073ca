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

const (
	// targetKept is how long the targets of a service are told of what happens while it does not
	// run.
	targetKept = 7 * 24 * time.Hour
	// flushTime is how long the last notifications may take when the work has ended.
	flushTime = 5 * time.Second
)

// Notifications are targets that are told of the events of every run of the store. They are for
// evalrun's own service; nobody else can make them.
type Notifications struct {
	Targets notify.Targets
	// Dir is the folder in which their commands start.
	Dir string
}

// Check says which URL or secret of a target cannot be used, because of the values of variables.
func (n Notifications) Check(v Variables) error {
	if err := n.Targets.CheckSecrets(v.resolve); err != nil {
		return &InputError{err}
	}
	return nil
}

// notifying starts to send what targets are to be told, those of eval sets and those of the
// options. finish sends what has become due, within a few seconds, and ends that.
func (s *Store) notifying(ctx context.Context, o Options) (finish func()) {
	known := o.Notifications.Targets
	letters := &letters{s: s, o: o}
	sender := notify.New(notify.Options{Store: s.st, Known: known.ForStore(), Keep: targetKept, Parcel: letters.parcel,
		Logger: s.logger(o, redact.New(o.Variables.secrets(known.Variables()...))),
		GivenUp: func(n store.Notification, target, why string) {
			o.notice("run %s: a notification was not delivered to %s and is given up: %s", n.RunID, redact.Line(target), why)
		}})
	ctx, cancel := context.WithCancel(ctx)
	drain, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- sender.Run(ctx, drain) }()
	return func() {
		close(drain)
		defer time.AfterFunc(flushTime, cancel).Stop()
		defer cancel()
		if err := <-done; err != nil && !store.IsBroken(err) { // a store that does not work ends the work by itself
			o.notice("notifications could not be sent: %v", err)
		}
	}
}

// tellOfAllRuns makes known whom the options tell of the events of all runs. What nobody could send
// for a long time is given up.
func (s *Store) tellOfAllRuns(ctx context.Context, o Options) error {
	if err := o.Notifications.Check(o.Variables); err != nil {
		return err
	}
	return s.st.AddTargets(ctx, o.Notifications.Targets.ForStore(), targetKept)
}

// Notify sends what targets are to be told until ctx is done, where nothing is executed: Run,
// Resume and Execute do so themselves.
func (s *Store) Notify(ctx context.Context, o Options) error {
	if err := s.tellOfAllRuns(ctx, o); err != nil {
		return err
	}
	finish := s.notifying(ctx, o)
	<-ctx.Done()
	finish()
	return nil
}

// Undelivered is something that a target was not told.
type Undelivered struct {
	// Event is the type of the event, Attempts how often it was tried.
	Event    string
	Attempts int
	// LastError names the target and says why; empty if it was not tried.
	LastError string
	// Next is when it is tried again; zero if it was given up.
	Next time.Time
}

// Undelivered lists what of a run was to be told and was not.
func (s *Store) Undelivered(ctx context.Context, runID string) (out []Undelivered, err error) {
	all, err := s.st.Undelivered(ctx, runID)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		e, err := s.eventOf(ctx, n)
		if err != nil {
			return nil, err
		}
		out = append(out, Undelivered{Event: string(e.Type), Attempts: n.Attempts, LastError: n.LastError, Next: n.DueAt})
	}
	return out, nil
}

// eventOf is the event that a notification tells.
func (s *Store) eventOf(ctx context.Context, n store.Notification) (store.Event, error) {
	events, err := s.st.Events(ctx, n.RunID, n.Seq-1, 1)
	if err == nil && (len(events) == 0 || events[0].Seq != n.Seq) {
		err = fmt.Errorf("event %d of run %s: %w", n.Seq, n.RunID, store.ErrNotFound)
	}
	if err != nil {
		return store.Event{}, err
	}
	return events[0], nil
}

// letters writes what targets are told.
type letters struct {
	s *Store
	o Options

	mu sync.Mutex
	// run is the run of the last one, with its plan and redactor: many tell of the same.
	run  string
	plan plans.Plan
	red  *redact.Redactor
}

// planOf is the plan of a run, and what takes secrets out of what is told of it.
func (l *letters) planOf(ctx context.Context, runID string) (plans.Plan, *redact.Redactor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == runID {
		return l.plan, l.red, nil
	}
	plan, err := l.s.planOf(ctx, runID)
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

// parcel makes what is sent of a notification.
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
		p.Dir, _ = plan.FindBaseDir(l.s.Dir(), dir)
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
	e, err := l.s.eventOf(ctx, n)
	if err != nil {
		return p, err
	}
	p.Messages, err = l.messages(ctx, plan, red, e)
	return p, err
}

// messages are what an event says: that a rollout waits, what a person is asked, or that the run is
// final. They are the same whenever they are made.
func (l *letters) messages(ctx context.Context, plan plans.Plan, red *redact.Redactor, e store.Event) (out []notify.Message, err error) {
	add := func(kind notify.Kind, typ, part, subject string, about any) error {
		data, err := json.Marshal(about)
		if err != nil {
			return err
		}
		out = append(out, notify.Message{ID: notify.MessageID(e.RunID, e.Seq, part), Kind: kind, Source: "/stores/" + l.s.ID() + "/runs/" + e.RunID,
			Subject: subject, Type: typ, Time: e.Time, Data: red.JSON(data)})
		return nil
	}
	of := told{RunID: e.RunID, RolloutID: e.RolloutID, EvaluationSetID: plan.Set.ID, EvaluationSetName: plan.Set.Name}
	ask := func(t store.Trigger) error {
		return add(notify.Question, notify.TypeQuestion, "question/"+t.ID, t.ID, toldQuestion{of.with(t), newToldTrigger(t), newTrigger(t).Payload})
	}
	switch e.Type {
	case store.RunFinished:
		about, err := l.finished(ctx, plan, red, of)
		if err != nil {
			return nil, err
		}
		return out, add(notify.Finished, notify.TypeFinished, "finished", "", about)
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
		if t.Type == string(wait.TypeTask) && t.Segment == data.Segment { // others were told of before
			asked = append(asked, t)
		}
	}
	if err := add(notify.Suspended, notify.TypeSuspended, "suspended", e.RolloutID, about); err != nil {
		return nil, err
	}
	for _, t := range asked {
		if err := ask(t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// finished says how a run has ended.
func (l *letters) finished(ctx context.Context, plan plans.Plan, red *redact.Redactor, of told) (out toldFinished, err error) {
	out.told = of
	verdict, reason, err := l.s.verdict(ctx, of.RunID, plan, red, Accept{}, false)
	if err != nil {
		return out, err
	}
	out.Verdict, out.Reason = verdict.String(), reason
	return out, report.FromStore(ctx, l.s.st, of.RunID, red, func(r *report.Report) error {
		out.Status, out.Summary = r.Status, r.Summary
		return nil
	})
}

// told is what every message says of what it is about.
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
	Segment  int           `json:"segment"`
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
	// Verdict is that of the run's own thresholds, where nothing is allowed to fail.
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Summary schemas.Summary `json:"summary"`
}

// toldTrigger is something that is waited for.
type toldTrigger struct {
	TriggerID   string     `json:"triggerId"`
	InterruptID string     `json:"interruptId"`
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
	return toldTrigger{TriggerID: t.ID, InterruptID: t.InterruptID, AskedBy: t.AskedBy, Type: t.Type, Name: t.Name, Source: t.Source, ItemKey: t.ItemKey,
		Deadline: shown.Deadline, ExpiresAt: shown.ExpiresAt}
}
