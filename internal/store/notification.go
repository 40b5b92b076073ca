package store

import (
	"context"
	"errors"
	"time"
)

// Outbox keeps what is to be told to the targets of notifications: the events of a run that its
// plan or a service wants to be told of. A notification is written by the transaction that makes
// the event, and stays until it was sent or given up. The caller decides who is told what, and how.
type Outbox interface {
	// AddTargets makes known, or keeps known for so long, targets that are told of the events of
	// every run from now on. Those of one run are in its plan. A notification that was due that
	// long ago and is for a target of every run is given up.
	AddTargets(ctx context.Context, targets []NotifyTarget, keep time.Duration) error
	// NextNotification is when a notification is due that ClaimNotifications would give out; zero if
	// there is none. Those that a dead process was sending are due now.
	NextNotification(ctx context.Context, known []string) (time.Time, error)
	// ClaimNotifications takes notifications that are due, the oldest first, all of one target and
	// at most limit of them. The target is one of a run, or one of those named as known, and none of
	// those named as busy. They are due again after hold unless their claim is ended before.
	ClaimNotifications(ctx context.Context, known, busy []string, limit int, hold time.Duration) ([]Notification, error)
	// NotificationSent forgets a claimed notification.
	NotificationSent(ctx context.Context, n Notification) error
	// NotificationFailed ends the claim of a notification that was not sent, or not as a whole.
	NotificationFailed(ctx context.Context, n Notification, f NotificationFailure) error
	// Undelivered returns the notifications of a run that were not sent, the oldest first.
	Undelivered(ctx context.Context, runID string) ([]Notification, error)
}

// ErrNotClaimed means that a notification has been claimed by another process by now.
var ErrNotClaimed = errors.New("the notification was claimed by another process")

// NotifyTarget is a target that is told of events.
type NotifyTarget struct {
	// ID is the caller's name for the target. Equal targets of several runs have the same.
	ID string
	// Types are the events that it is told of, of those that NotifiedEvents names.
	Types []EventType
}

// NotifiedEvents are the events that a target can be told of.
var NotifiedEvents = []EventType{RolloutSuspended, RolloutScoring, QuestionAsked, RunFinished, RunRescored}

// Notification is one event that one target is to be told of.
type Notification struct {
	ID     int64
	Target string
	// OfRun says that the target is one of the run's plan.
	OfRun bool
	// RunID and Seq name the event.
	RunID string
	Seq   int64
	// Attempts counts the claims that began to send it, this one included.
	Attempts int
	// Parts is how many of its messages were sent.
	Parts int
	// CreatedAt is when the event was. DueAt is when it is tried again; zero if it was given up.
	CreatedAt, DueAt time.Time
	// LastError is why it was not sent the last time; empty if it was not tried.
	LastError string
}

// NotificationFailure says what follows from an attempt that failed.
type NotificationFailure struct {
	Error string
	// Parts is how many messages have been sent by now.
	Parts int
	// After is the pause before it is tried again; Never gives it up.
	After time.Duration
	// NotTried says that nothing was sent: the attempt does not count, and Error may be empty.
	NotTried bool
}
