package storetest

import (
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// notifies makes a plan whose events the named targets are told of, all of them.
func notifies(targets ...string) func(*store.Plan) {
	return func(p *store.Plan) {
		for _, id := range targets {
			p.Notify = append(p.Notify, store.NotifyTarget{ID: id, Types: store.NotifiedEvents})
		}
	}
}

const hold = time.Minute

// claimNotifications claims what is due for the targets of runs.
func (w *world) claimNotifications(s Store, busy ...string) []store.Notification {
	w.Helper()
	claimed, err := s.ClaimNotifications(w.ctx, nil, busy, 10, hold)
	w.must(err)
	return claimed
}

// notification claims the one that is due.
func (w *world) notification(s Store) store.Notification {
	w.Helper()
	claimed := w.claimNotifications(s)
	if len(claimed) != 1 {
		w.Fatalf("got %d notifications, want 1: %+v", len(claimed), claimed)
	}
	return claimed[0]
}

// told are the targets and types of the events of notifications.
func (w *world) told(all []store.Notification) (out []string) {
	w.Helper()
	for _, n := range all {
		out = append(out, n.Target+" "+string(w.events(n.RunID)[n.Seq-1].Type))
	}
	return out
}

func (w *world) nextNotification(s Store, known ...string) time.Time {
	w.Helper()
	next, err := s.NextNotification(w.ctx, known)
	w.must(err)
	return next
}

func (w *world) undelivered(runID string) []store.Notification {
	w.Helper()
	all, err := w.a.Undelivered(w.ctx, runID)
	w.must(err)
	return all
}

func notificationSpecs(s *suite) {
	s.spec("a notification is there with its event, for each target that wants to be told of it", func(w *world) {
		runID, _ := w.suspended(list(external("i")), notifies("a"), func(p *store.Plan) {
			p.Notify = append(p.Notify, store.NotifyTarget{ID: "b", Types: []store.EventType{store.RunFinished}})
		})
		equal(w, "next", w.nextNotification(w.a), w.Now())
		equal(w, "suspended", w.told(w.undelivered(runID)), []string{"a rollout.suspended"})
		w.cancel(runID)
		equal(w, "ended", w.told(w.undelivered(runID)), []string{"a rollout.suspended", "a run.finished", "b run.finished"})
	})

	s.spec("a run without targets has no notifications", func(w *world) {
		runID, _ := w.suspended(list(external("i")))
		equal(w, "next", w.nextNotification(w.a), time.Time{})
		equal(w, "undelivered", len(w.undelivered(runID)), 0)
		equal(w, "claimed", len(w.claimNotifications(w.a)), 0)
	})

	s.spec("a run that is over before it begins is told of", func(w *world) {
		runID, _ := w.create(0, notifies("a"))
		equal(w, "told", w.told(w.undelivered(runID)), []string{"a run.finished"})
	})

	s.spec("a notification that was sent is gone, and is claimed by nobody meanwhile", func(w *world) {
		runID, _ := w.suspended(list(external("i")), notifies("a"))
		n := w.notification(w.a)
		equal(w, "attempts", n.Attempts, 1)
		b := w.another()
		equal(w, "claimed twice", len(w.claimNotifications(b)), 0)
		equal(w, "next", w.nextNotification(b), w.Now().Add(hold))
		w.must(w.a.NotificationSent(w.ctx, n))
		equal(w, "undelivered", len(w.undelivered(runID)), 0)
		w.refused("sent again", w.a.NotificationSent(w.ctx, n), store.ErrNotClaimed)
	})

	s.spec("what a dead process was sending is due at once, what another one holds after a while", func(w *world) {
		w.suspended(list(external("i")), notifies("a"))
		dead := w.as(deadProcess())
		w.notification(dead)
		equal(w, "next", w.nextNotification(w.a), w.Now())
		n := w.notification(w.a)
		equal(w, "attempts", n.Attempts, 2)
		w.refused("the dead one's", dead.NotificationSent(w.ctx, n), store.ErrNotClaimed)
		b := w.another()
		equal(w, "of a living one", len(w.claimNotifications(b)), 0)
		w.advance(hold)
		again := w.notification(b)
		equal(w, "attempts", again.Attempts, 3)
		w.refused("the slow one's end", w.a.NotificationSent(w.ctx, n), store.ErrNotClaimed)
		w.must(b.NotificationSent(w.ctx, again))
	})

	s.spec("one that failed is tried again when it is due, until it is given up", func(w *world) {
		runID, _ := w.suspended(list(external("i")), notifies("a"))
		w.must(w.a.NotificationFailed(w.ctx, w.notification(w.a), store.NotificationFailure{
			Error: "down", Parts: 1, After: time.Hour}))
		equal(w, "too early", len(w.claimNotifications(w.a)), 0)
		equal(w, "next", w.nextNotification(w.a), w.Now().Add(time.Hour))
		w.advance(time.Hour)
		n := w.notification(w.a)
		equal(w, "error", n.LastError, "down")
		equal(w, "attempts, parts", [2]int{n.Attempts, n.Parts}, [2]int{2, 1})
		w.must(w.a.NotificationFailed(w.ctx, n, store.NotificationFailure{NotTried: true, Parts: 1}))
		n = w.notification(w.a)
		equal(w, "attempts", n.Attempts, 2)
		w.must(w.a.NotificationFailed(w.ctx, n, store.NotificationFailure{Error: "gone", Parts: 1, After: store.Never}))
		w.advance(1000 * time.Hour)
		equal(w, "next", w.nextNotification(w.a), time.Time{})
		equal(w, "given up", len(w.claimNotifications(w.a)), 0)
		left := w.undelivered(runID)
		if len(left) != 1 || !left[0].DueAt.IsZero() || left[0].LastError != "gone" {
			w.Errorf("got %+v", left)
		}
	})

	s.spec("one target at a time is claimed, and none that is busy", func(w *world) {
		w.suspended(list(external("i")), notifies("a", "b"))
		w.suspended(list(external("i")), notifies("b", "c"))
		seen := map[string]int{}
		var busy []string
		for range 3 {
			claimed := w.claimNotifications(w.a, busy...)
			if len(claimed) == 0 {
				w.Fatal("nothing was claimed")
			}
			for _, n := range claimed {
				equal(w, "target", n.Target, claimed[0].Target)
				seen[n.Target]++
			}
			busy = append(busy, claimed[0].Target)
		}
		equal(w, "claimed", seen, map[string]int{"a": 1, "b": 2, "c": 1})
		equal(w, "left", len(w.claimNotifications(w.a)), 0)
	})

	s.spec("those of a run that was removed are gone", func(w *world) {
		runID, _ := w.suspended(list(external("i")), notifies("a"))
		w.cancel(runID)
		n := w.claimNotifications(w.a)[0]
		w.must(w.a.Remove(w.ctx, runID))
		w.refused("sent", w.a.NotificationSent(w.ctx, n), store.ErrNotClaimed)
		w.advance(hold)
		equal(w, "next", w.nextNotification(w.a), time.Time{})
	})
}

func targetSpecs(s *suite) {
	all := []store.NotifyTarget{{ID: "s", Types: store.NotifiedEvents}}

	s.spec("a target of the service is told of every run, by who knows it", func(w *world) {
		before, _ := w.suspended(list(external("i")))
		w.must(w.a.AddTargets(w.ctx, all, time.Hour))
		runID, _ := w.suspended(list(external("i")), notifies("a"))
		equal(w, "told before", len(w.undelivered(before)), 0)
		equal(w, "told", len(w.undelivered(runID)), 2)
		w.must(w.a.NotificationSent(w.ctx, w.notification(w.a)))
		equal(w, "next for others", w.nextNotification(w.a), time.Time{})
		equal(w, "next", w.nextNotification(w.a, "s"), w.Now())
		claimed, err := w.a.ClaimNotifications(w.ctx, []string{"other", "s"}, nil, 10, hold)
		w.must(err)
		equal(w, "claimed", w.told(claimed), []string{"s rollout.suspended"})
		equal(w, "of a run", claimed[0].OfRun, false)
		w.cancel(before)
		equal(w, "from now on", w.told(w.undelivered(before)), []string{"s run.finished"})
	})

	s.spec("a target that nobody names any more is forgotten after a while", func(w *world) {
		w.must(w.a.AddTargets(w.ctx, all, time.Hour))
		w.advance(30 * time.Minute)
		w.must(w.a.AddTargets(w.ctx, all, time.Hour))
		w.advance(50 * time.Minute)
		kept, _ := w.suspended(list(external("i")))
		w.advance(10 * time.Minute)
		late, _ := w.suspended(list(external("i")))
		equal(w, "in time", len(w.undelivered(kept)), 1)
		equal(w, "after it", len(w.undelivered(late)), 0)
	})

	s.spec("what nobody could tell a target for a long time is given up", func(w *world) {
		w.must(w.a.AddTargets(w.ctx, all, time.Hour))
		runID, _ := w.suspended(list(external("i")), notifies("a"))
		w.advance(59 * time.Minute)
		w.must(w.a.AddTargets(w.ctx, nil, time.Hour))
		equal(w, "in time", w.nextNotification(w.a, "s"), w.Now().Add(-59*time.Minute))
		w.advance(2 * time.Minute)
		w.must(w.a.AddTargets(w.ctx, nil, time.Hour))
		left := w.undelivered(runID)
		equal(w, "left", len(left), 2)
		for _, n := range left {
			equal(w, "given up: "+n.Target, n.DueAt.IsZero() && n.LastError != "", n.Target == "s")
		}
	})

	s.spec("the same target of two runs is one", func(w *world) {
		w.suspended(list(external("i")), notifies("a"))
		w.suspended(list(external("i")), notifies("a"))
		equal(w, "claimed together", len(w.claimNotifications(w.a)), 2)
	})
}
