package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// targetKept is how long events are kept for the targets of a service that does not run.
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

// Check returns which URL or secret of a target cannot be used, because of the values of variables.
func (n Notifications) Check(v Variables) error {
	if err := n.Targets.CheckSecrets(v.resolve); err != nil {
		return &InputError{Err: err}
	}
	return nil
}

// notifying starts to send notifications to the targets of eval sets and of the options. finish
// sends those that have become due, within a few seconds, and stops.
func (w work) notifying(ctx context.Context) (finish func()) {
	s, o := w.s, w.o
	known := o.Notifications.Targets
	letters := &letters{s: s, o: o}
	sender := notify.New(notify.Options{Store: s.st, Known: known.ForStore(), Keep: targetKept, Parcel: letters.parcel,
		Logger: w.logger(redact.New(o.Variables.secrets(known.Variables()...))),
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
		if err := <-done; err != nil && !store.IsBroken(err) { // a broken store ends the work by itself
			o.notice("notifications could not be sent: %v", err)
		}
	}
}

// tellOfAllRuns records the targets that the options tell of the events of all runs. It gives up
// notifications that nobody could send for a long time.
func (w work) tellOfAllRuns(ctx context.Context) error {
	if err := w.o.Notifications.Check(w.o.Variables); err != nil {
		return err
	}
	return w.s.st.AddTargets(ctx, w.o.Notifications.Targets.ForStore(), targetKept)
}

// Notify sends notifications until ctx is done. It is for a process that executes nothing: Run,
// Resume and Execute send them themselves.
func (s *Store) Notify(ctx context.Context, o Options) error {
	w := work{s: s, o: o}
	if err := w.tellOfAllRuns(ctx); err != nil {
		return err
	}
	finish := w.notifying(ctx)
	<-ctx.Done()
	finish()
	return nil
}

// Undelivered is a notification that was not delivered.
type Undelivered struct {
	// Event is the type of the event, Attempts how often its delivery was tried.
	Event    string
	Attempts int
	// LastError names the target and says why; empty if it was not tried.
	LastError string
	// Next is when it is tried again; zero if it was given up.
	Next time.Time
}

// Undelivered lists the notifications of a run that were not delivered.
func (s *Store) Undelivered(ctx context.Context, runID string) (out []Undelivered, err error) {
	all, err := s.st.Undelivered(ctx, runID)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		e, err := eventOf(ctx, s.st, n)
		if err != nil {
			return nil, err
		}
		out = append(out, Undelivered{Event: string(e.Type), Attempts: n.Attempts, LastError: n.LastError, Next: n.DueAt})
	}
	return out, nil
}

// eventOf returns the event of a notification.
func eventOf(ctx context.Context, st store.Reader, n store.Notification) (store.Event, error) {
	events, err := st.Events(ctx, n.RunID, n.Seq-1, 1)
	if err == nil && (len(events) == 0 || events[0].Seq != n.Seq) {
		err = fmt.Errorf("event %d of run %s: %w", n.Seq, n.RunID, store.ErrNotFound)
	}
	if err != nil {
		return store.Event{}, err
	}
	return events[0], nil
}
