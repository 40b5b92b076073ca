package notify

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait/template"
)

const (
	// maxTargets is the most targets that are sent to at once. Each gets one message at a time.
	maxTargets = 16
	// batch is the most notifications that are claimed at once, hold the time of a claim.
	batch = 16
	hold  = 3 * time.Minute
	// settle is how long the sender waits for more changes before it asks the store.
	settle = 50 * time.Millisecond
	// lookAgain is the most time between two requests to the store, with or without changes.
	lookAgain = 5 * time.Minute
	// keepEvery is how often the known targets are announced again.
	keepEvery = time.Hour
	// later is the time after which another process may know what this one does not.
	later = time.Minute
	// leftAtMost is how long a notification is left to processes that can send it.
	leftAtMost = 7 * 24 * time.Hour
)

// pauses are the pauses between the attempts. After the last one a notification is given up. They
// are the example of Standard Webhooks.
var pauses = []time.Duration{
	5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// ErrNotHere means that this process cannot send a notification, but another may.
var ErrNotHere = errors.New("this process cannot send it")

// Parcel is a notification in the form in which it is sent.
type Parcel struct {
	Target Target
	// Messages are sent one after the other. Those that the target does not want are left out.
	Messages []Message
	// Resolve returns the values of the target's variables, Redact removes them from errors.
	Resolve template.Resolver
	Redact  *redact.Redactor
	// Dir is the folder in which a command starts.
	Dir string
}

// Options configure a Sender.
type Options struct {
	Store interface {
		store.Outbox
		store.Changes
	}
	// Known are the targets of this process, besides those of the runs' own plans. Run keeps them
	// known to the store for the time Keep.
	Known []store.NotifyTarget
	Keep  time.Duration
	// Parcel makes the parcel of a notification. ErrNotHere leaves it for another process.
	// store.ErrNotFound means that its run is gone.
	Parcel func(context.Context, store.Notification) (Parcel, error)
	Logger *slog.Logger
	// GivenUp, if not nil, is called with a notification that was given up, for a person.
	GivenUp func(n store.Notification, target, why string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Sender sends the notifications in the store's outbox. There may be several, in one process or in
// many.
type Sender struct {
	o      Options
	client *http.Client
	// known are the ids of the known targets.
	known []string
	// freed is signalled when a target is not busy any more.
	freed chan struct{}
	work  sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool
	// warned has the targets whose trouble was reported, until they take something.
	warned map[string]bool
}

// New makes a sender. It does nothing until Run or Flush is called.
func New(o Options) *Sender {
	if o.Now == nil {
		o.Now = time.Now
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 1, 10*time.Second
	var known []string
	for _, t := range o.Known {
		known = append(known, t.ID)
	}
	return &Sender{
		o: o, known: known, freed: make(chan struct{}, 1), busy: map[string]bool{}, warned: map[string]bool{},
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Run sends until drain is closed. Then it sends everything that is due once more, as Flush does,
// and returns. When ctx is done it returns at once: sending stops and is tried again another time.
// The error is one of the store.
func (s *Sender) Run(ctx context.Context, drain <-chan struct{}) error {
	defer s.client.CloseIdleConnections()
	defer s.work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	kept := s.o.Now()
	for {
		changed := s.o.Store.Changed("")
		next, err := s.start(ctx)
		if err == nil && len(s.known) > 0 && s.o.Now().Sub(kept) > keepEvery {
			kept, err = s.o.Now(), s.o.Store.AddTargets(ctx, s.o.Known, s.o.Keep)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case store.IsBroken(err):
			return err
		case err != nil:
			s.o.Logger.Error("notifications could not be read", "error", err)
		}
		pause := lookAgain
		if now := s.o.Now(); next.After(now) {
			pause = min(pause, next.Sub(now))
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			return s.Flush(ctx)
		case <-s.freed:
		case <-timer.C:
		case <-changed:
			timer.Reset(settle)
			select {
			case <-ctx.Done():
				return nil
			case <-drain:
			case <-timer.C:
			}
		}
	}
}

// Flush sends everything that is due once, and returns when that is done or ctx is.
func (s *Sender) Flush(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	defer s.work.Wait()
	for {
		next, err := s.start(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		s.mu.Lock()
		idle := len(s.busy) == 0
		s.mu.Unlock()
		if idle && (next.IsZero() || next.After(s.o.Now())) {
			return nil
		}
		if idle {
			continue // more has become due in between
		}
		select {
		case <-s.freed:
		case <-ctx.Done():
			return nil
		}
	}
}

// start begins to send what is due, and returns when more will be. Notifications for a busy target
// come when that is freed.
func (s *Sender) start(ctx context.Context) (next time.Time, err error) {
	for {
		next, err := s.o.Store.NextNotification(ctx, s.known)
		if err != nil || next.IsZero() || next.After(s.o.Now()) {
			return next, err
		}
		s.mu.Lock()
		busy := slices.Collect(maps.Keys(s.busy))
		s.mu.Unlock()
		if len(busy) >= maxTargets {
			return next, nil
		}
		claimed, err := s.o.Store.ClaimNotifications(ctx, s.known, busy, batch, hold)
		if err != nil || len(claimed) == 0 {
			return next, err
		}
		target, until := claimed[0].Target, s.o.Now().Add(hold-2*time.Duration(maxTimeout))
		s.mu.Lock()
		s.busy[target] = true
		s.mu.Unlock()
		s.work.Go(func() {
			s.sendAll(ctx, claimed, until)
			s.mu.Lock()
			delete(s.busy, target)
			s.mu.Unlock()
			select {
			case s.freed <- struct{}{}:
			default:
			}
		})
	}
}

// sendAll sends the notifications of one target. When the target does not take one, the others wait
// as long as that one does: a target that is down costs one request a round.
func (s *Sender) sendAll(ctx context.Context, claimed []store.Notification, until time.Time) {
	commit := context.WithoutCancel(ctx)
	var pause time.Duration
	for down := false; len(claimed) > 0 && !down && ctx.Err() == nil && !s.o.Now().After(until); {
		n := claimed[0]
		claimed = claimed[1:]
		var err error
		if down, pause, err = s.send(ctx, n); err != nil && !errors.Is(err, store.ErrNotClaimed) {
			s.o.Logger.Error("a notification's end could not be recorded; it may be sent again", "run", n.RunID, "error", err)
		}
	}
	for _, rest := range claimed {
		err := s.o.Store.NotificationFailed(commit, rest,
			store.NotificationFailure{NotTried: true, Parts: rest.Parts, After: pause})
		if err != nil && !errors.Is(err, store.ErrNotClaimed) {
			s.o.Logger.Error("a notification could not be put back; it is sent later", "run", rest.RunID, "error", err)
		}
	}
}

// send sends one notification and records the outcome. down is set if its target may be tried
// again only after a pause, and not if this notification alone was not for it.
func (s *Sender) send(ctx context.Context, n store.Notification) (down bool, pause time.Duration, err error) {
	commit, log := context.WithoutCancel(ctx), s.o.Logger.With("run", n.RunID, "event", n.Seq)
	parcel, err := s.o.Parcel(commit, n)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, 0, s.o.Store.NotificationSent(commit, n)
	case err != nil:
		return false, 0, s.leave(commit, n, parcel.Target.Name(), parcel.Redact.String(err.Error()))
	}
	parts := n.Parts
	var why *failure
	for parts < len(parcel.Messages) && why == nil {
		failpoint.Hit("notify.sending")
		if why = s.tell(ctx, parcel, parcel.Messages[parts]); why == nil {
			parts++
		}
	}
	failpoint.Hit("notify.sent")
	name := parcel.Redact.String(parcel.Target.Name())
	if why == nil {
		s.setWarned(n.Target, false)
		return false, 0, s.o.Store.NotificationSent(commit, n)
	}
	f := store.NotificationFailure{Parts: parts, Error: redact.Line(name) + ": " + why.text(parcel.Redact)}
	if ctx.Err() != nil { // the sender itself stopped the attempt
		f.NotTried, f.Error = true, ""
		return true, 0, s.o.Store.NotificationFailed(commit, n, f)
	}
	if why.final || n.Attempts > len(pauses) {
		f.After = store.Never
		s.giveUp(n, name, f.Error)
		return false, 0, s.o.Store.NotificationFailed(commit, n, f)
	}
	f.After = max(pauses[n.Attempts-1], min(why.after, pauses[len(pauses)-1]))
	if s.setWarned(n.Target, true) {
		log.Warn("a notification was not delivered; it will be tried again",
			"target", name, "after", f.After, "error", f.Error)
	}
	return true, f.After, s.o.Store.NotificationFailed(commit, n, f)
}

// leave puts back a notification that this process cannot send. Another may, within a limited time.
func (s *Sender) leave(ctx context.Context, n store.Notification, target, why string) error {
	f := store.NotificationFailure{NotTried: true, Parts: n.Parts, After: later, Error: why}
	if s.setWarned(n.Target, true) {
		s.o.Logger.Warn("a notification is left for another process, or for later", "run", n.RunID, "error", why)
	}
	if s.o.Now().Sub(n.CreatedAt) > leftAtMost {
		f.After = store.Never
		s.giveUp(n, target, why)
	}
	return s.o.Store.NotificationFailed(ctx, n, f)
}

func (s *Sender) giveUp(n store.Notification, target, why string) {
	s.o.Logger.Warn("a notification was not delivered and is given up",
		"run", n.RunID, "event", n.Seq, "target", target, "attempts", n.Attempts, "error", why)
	if s.o.GivenUp != nil {
		s.o.GivenUp(n, target, why)
	}
}

func (s *Sender) tell(ctx context.Context, p Parcel, m Message) *failure {
	if !slices.Contains(p.Target.Events, m.Kind) {
		return nil
	}
	if p.Target.URL == "" {
		return s.run(ctx, p.Target, p.Dir, m)
	}
	return s.post(ctx, p.Target, p.Resolve, m)
}

// setWarned notes whether a target is in trouble, and reports whether that is new.
func (s *Sender) setWarned(target string, trouble bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.warned[target] != trouble
	s.warned[target] = trouble
	return changed
}
