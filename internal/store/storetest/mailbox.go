package storetest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func byKey(key, text string) store.Delivery {
	return store.Delivery{
		Source: "inbox", ItemKey: key, Status: store.StatusSuccessful, Payload: json.RawMessage(text), By: "webhook"}
}

func mailboxSpecs(s *suite) {
	s.spec("a delivery is addressed by the trigger's id, or by source and item key", func(w *world) {
		_, rollout := w.suspended(list(external("i"), external("j")))
		for _, d := range []store.Delivery{payload(store.TriggerID(rollout, "i", 0, 0), `1`), byKey("key-j", `2`)} {
			r, err := w.a.Deliver(w.ctx, d)
			w.must(err)
			equal(w, "disposition", r.Disposition, store.Accepted)
			equal(w, "rollout", r.Trigger.RolloutID, rollout)
		}
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1", "j": "successful 2"})
	})

	s.spec("who answered is kept with the trigger, with every delivery and in the event", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), external("j")))
		id := store.TriggerID(rollout, "i", 0, 0)
		for _, person := range []string{"ada", "bob"} {
			d := payload(id, `1`)
			d.By, d.Person = "approve", person
			w.deliver(w.a, d)
		}
		g := w.trigger(id)
		equal(w, "the one that counts", [2]string{g.DeliveredBy, g.Person}, [2]string{"approve", "ada"})
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		var people []string
		for _, d := range all {
			people = append(people, d.Person)
		}
		equal(w, "all", people, []string{"ada", "bob"})
		events := w.events(runID)
		var data struct{ By, Person string }
		w.must(json.Unmarshal(events[len(events)-1].Data, &data))
		equal(w, "event", data, struct{ By, Person string }{"approve", "ada"})
		equal(w, "the other", w.trigger(store.TriggerID(rollout, "j", 0, 0)).Person, "")
	})

	s.spec("who answered is known, too, if the answer came before the question", func(w *world) {
		runID, ids := w.create(1)
		d := payload(store.TriggerID(ids[0], "i", 0, 0), `1`)
		d.Person = "ada"
		equal(w, "disposition", w.deliver(w.a, d), store.Parked)
		w.suspend(w.a, w.claim(w.a), external("i"))
		equal(w, "person", w.view(runID, ids[0]).Triggers[0].Person, "ada")
	})

	s.spec("the key of another source does not match", func(w *world) {
		_, _ = w.suspended(list(external("i")))
		d := byKey("key-i", `1`)
		d.Source = "http"
		equal(w, "disposition", w.deliver(w.a, d), store.Parked)
		w.claimsNothing(w.a)
	})

	s.spec("a delivery by key is for all who wait for it", func(w *world) { // B7
		_, first := w.suspended(list(external("i")))
		_, second := w.suspended(list(external("i")))
		r, err := w.a.Deliver(w.ctx, byKey("key-i", `1`))
		w.must(err)
		var by []string
		for _, g := range r.Accepted {
			by = append(by, g.RolloutID)
		}
		equal(w, "disposition", r.Disposition, store.Accepted)
		equal(w, "accepted by", by, []string{first, second})
		equal(w, "the first of them", r.Trigger.RolloutID, first)
		claims, err := w.a.Claim(w.ctx, "", 10)
		w.must(err)
		equal(w, "resumed", len(claims), 2)
	})

	s.spec("a delivery by key counts once for siblings and for each interrupt of a rollout", func(w *world) { // B7
		one, other, sibling := external("i"), external("j"), external("i")
		one.ItemKey, other.ItemKey, sibling.ItemKey = "k", "k", "k"
		runID, rollout := w.suspended(list(one, other, sibling), needsAll)
		r, err := w.a.Deliver(w.ctx, byKey("k", `1`))
		w.must(err)
		equal(w, "accepted", len(r.Accepted), 2)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerFired, "j/0/0": store.TriggerFired, "i/0/1": store.TriggerSuperseded})
		equal(w, "deliveries", len(w.claim(w.a).Deliveries), 2)
	})

	s.spec("of several triggers with one key those that wait get the delivery, else the newest", func(w *world) {
		_, first := w.suspended(list(external("i")))
		w.deliver(w.a, byKey("key-i", `1`))
		w.commit(w.a, w.claim(w.a), completed)
		_, second := w.suspended(list(external("i")))
		r, err := w.a.Deliver(w.ctx, byKey("key-i", `2`))
		w.must(err)
		equal(w, "accepted by", [2]string{r.Trigger.RolloutID, string(r.Disposition)},
			[2]string{second, string(store.Accepted)})
		w.commit(w.a, w.claim(w.a), completed)
		r, err = w.a.Deliver(w.ctx, byKey("key-i", `3`))
		w.must(err)
		if r.Disposition != store.Duplicate || r.Trigger.RolloutID == first {
			w.Fatalf("%+v", r)
		}
	})

	s.spec("the first delivery wins; the rest are kept and shown", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		equal(w, "first", w.deliver(w.a, payload(id, `1`)), store.Accepted)
		revision := w.run(runID).Revision
		w.advance(time.Second)
		equal(w, "second", w.deliver(w.another(), payload(id, `2`)), store.Duplicate)
		equal(w, "by key", w.deliver(w.a, byKey("key-i", `3`)), store.Duplicate)
		if w.run(runID).Revision <= revision {
			w.Fatal("the revision did not grow")
		}
		c := w.claim(w.a)
		equal(w, "deliveries", payloads(c), map[string]string{"i": "successful 1"})
		w.commit(w.a, c, completed)
		equal(w, "after it was consumed", w.deliver(w.a, payload(id, `4`)), store.Duplicate)
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		var kept []string
		for _, d := range all {
			kept = append(kept, string(d.Payload)+" "+string(d.Disposition)+" "+d.By)
		}
		equal(w, "kept", kept, []string{
			"1 accepted deliver", "2 duplicate deliver", "3 duplicate webhook", "4 duplicate deliver"})
		equal(w, "received", all[1].ReceivedAt, w.Now())
	})

	s.spec("of what comes after the first only so much is kept, and the answer stays the same", func(w *world) {
		_, rollout := w.suspended(list(external("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		large := `"` + strings.Repeat("x", 100<<10) + `"`
		w.deliver(w.a, payload(id, large))
		for i := range store.MaxKept + 5 {
			text := large
			if i == 1 {
				text = `"small"`
			}
			equal(w, "disposition", w.deliver(w.a, payload(id, text)), store.Duplicate)
		}
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		equal(w, "kept", len(all), 1+store.MaxKept)
		equal(w, "the first", string(all[0].Payload), large)
		equal(w, "a large one", string(all[1].Payload),
			fmt.Sprintf(`{"notKept":{"bytes":%d,"sha256":"%x"}}`, len(large), sha256.Sum256([]byte(large))))
		equal(w, "a small one", string(all[2].Payload), `"small"`)
	})

	s.spec("of what comes when nobody waits the first is kept whole, and only so many", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		w.cancel(runID)
		large := `"` + strings.Repeat("x", 100<<10) + `"`
		for range store.MaxKept + 5 {
			equal(w, "disposition", w.deliver(w.a, payload(id, large)), store.Late)
		}
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		equal(w, "kept", len(all), store.MaxKept)
		equal(w, "the first", string(all[0].Payload), large)
		equal(w, "the last is short", len(all[store.MaxKept-1].Payload) < 200, true)
	})

	s.spec("a delivery for which nobody waits is late and changes nothing", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.cancel(runID)
		before := w.view(runID, rollout)
		equal(w, "disposition", w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`)), store.Late)
		equal(w, "rollout", w.view(runID, rollout), before)
	})

	s.spec("of two that deliver at once in two processes exactly one wins", func(w *world) {
		const n = 10
		var triggers []store.NewTrigger
		for i := range n {
			triggers = append(triggers, external(string(rune('a'+i))))
		}
		_, rollout := w.suspended(triggers, needsAll)
		stores := []Store{w.a, w.another()}
		won := [n][2]store.Disposition{}
		var group sync.WaitGroup
		for i, g := range triggers {
			for j, s := range stores {
				group.Go(func() {
					r, err := s.Deliver(w.ctx, payload(store.TriggerID(rollout, g.InterruptID, 0, 0), `1`))
					if err != nil {
						w.Error(err)
					}
					won[i][j] = r.Disposition
				})
			}
		}
		group.Wait()
		for _, r := range won {
			if (r != [2]store.Disposition{store.Accepted, store.Duplicate}) &&
				(r != [2]store.Disposition{store.Duplicate, store.Accepted}) {
				w.Fatalf("%v", won)
			}
		}
		equal(w, "deliveries", len(w.claim(w.a).Deliveries), n)
	})

	s.spec("a delivery without a status, or for nothing, is an error", func(w *world) {
		for _, d := range []store.Delivery{{Source: "inbox", ItemKey: "k"}, {Status: store.StatusSuccessful},
			{TriggerID: "not-an-id", Status: store.StatusSuccessful}} {
			if _, err := w.a.Deliver(w.ctx, d); err == nil {
				w.Fatalf("%+v: no error", d)
			}
		}
	})
}

func parkedSpecs(s *suite) {
	const week = 7 * 24 * time.Hour

	s.spec("a delivery by key before its trigger resumes at once", func(w *world) {
		_, _ = w.create(1)
		equal(w, "disposition", w.deliver(w.a, byKey("key-i", `1`)), store.Parked)
		received := w.Now()
		w.advance(time.Minute)
		b := w.another()
		c := w.claim(b)
		equal(w, "committed", w.suspend(b, c, external("i")), store.Committed{State: eval.StateSuspended, Ready: true})
		c = w.claim(w.a)
		equal(w, "deliveries", payloads(c), map[string]string{"i": "successful 1"})
		equal(w, "received", c.Deliveries[0].DeliveredAt, received)
	})

	s.spec("a delivery by an id that was derived before its trigger resumes at once", func(w *world) {
		_, rollouts := w.create(1)
		id := store.TriggerID(rollouts[0], "i", 0, 0)
		equal(w, "disposition", w.deliver(w.a, payload(id, `1`)), store.Parked)
		c := w.claim(w.a)
		equal(w, "ready", w.suspend(w.a, c, external("i")).Ready, true)
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		equal(w, "kept", len(all), 1)
		equal(w, "disposition", all[0].Disposition, store.Accepted)
	})

	s.spec("what is parked is listed, until a trigger that it names takes it or it is too old", func(w *world) {
		_, rollouts := w.create(1)
		id := store.TriggerID(rollouts[0], "i", 0, 0)
		w.deliver(w.a, byKey("key-x", `1`))
		first := w.Now()
		w.advance(time.Hour)
		w.deliver(w.a, payload(id, `2`))
		list := func(limit int) (out []store.Delivered) {
			all, err := w.another().Parked(w.ctx, limit)
			w.must(err)
			return all
		}
		all := list(10)
		if len(all) != 2 || all[0].ItemKey != "key-x" || all[0].TriggerID != "" || all[0].ReceivedAt != first ||
			all[1].TriggerID != id || all[1].Disposition != store.Parked {
			w.Fatalf("%+v", all)
		}
		equal(w, "of two", len(list(1)), 1)
		w.suspend(w.a, w.claim(w.a), external("i"))
		equal(w, "when it was taken", len(list(10)), 1)
		w.advance(week)
		equal(w, "a week later", len(list(10)), 0)
	})

	s.spec("of several parked deliveries the first wins, the others are duplicates", func(w *world) {
		_, rollouts := w.create(1)
		id := store.TriggerID(rollouts[0], "i", 0, 0)
		for i, d := range []store.Delivery{byKey("key-i", `1`), payload(id, `2`), byKey("key-i", `3`)} {
			equal(w, "disposition", w.deliver(w.a, d), store.Parked)
			w.advance(time.Duration(i) * time.Second)
		}
		w.suspend(w.a, w.claim(w.a), external("i"))
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
		all, err := w.a.Deliveries(w.ctx, id)
		w.must(err)
		var kept []store.Disposition
		for _, d := range all {
			kept = append(kept, d.Disposition)
		}
		equal(w, "kept", kept, []store.Disposition{store.Accepted, store.Duplicate, store.Duplicate})
	})

	s.spec("a parked delivery by key answers each rollout that comes to wait for it, once", func(w *world) { // B7
		w.deliver(w.a, byKey("key-i", `1`))
		runID, rollouts := w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		for _, c := range claims {
			other := external("j")
			other.ItemKey = "key-i" // two interrupts of one suspension
			equal(w, "answered", w.suspend(w.a, c, external("i"), other).Ready, true)
			equal(w, "triggers", states(w.view(runID, c.RolloutID).Triggers), map[string]store.TriggerState{
				"i/0/0": store.TriggerFired, "j/0/0": store.TriggerFired})
		}
		again, err := w.a.Claim(w.ctx, "", 1)
		w.must(err)
		equal(w, "what comes later is not answered by it", w.suspend(w.a, again[0], external("i")).Ready, false)
		all, err := w.a.Deliveries(w.ctx, store.TriggerID(rollouts[1], "i", 0, 0))
		w.must(err)
		equal(w, "kept", len(all), 1)
	})

	s.spec("a parked delivery by the id of a trigger is for that one only", func(w *world) {
		_, rollouts := w.create(2)
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		for _, c := range claims {
			equal(w, "answered", w.suspend(w.a, c, external("i")).Ready, c.RolloutID == rollouts[0])
		}
	})

	s.spec("a parked delivery is kept for seven days and not longer", func(w *world) {
		w.deliver(w.a, byKey("key-old", `1`))
		w.advance(time.Second)
		w.deliver(w.a, byKey("key-new", `2`))
		w.advance(week - time.Second/2)
		w.deliver(w.a, byKey("key-other", `3`)) // makes the store look
		runID, rollouts := w.create(1)
		done := w.suspend(w.a, w.claim(w.a), external("old"), external("new"))
		equal(w, "ready", done.Ready, true)
		equal(w, "triggers", states(w.view(runID, rollouts[0]).Triggers), map[string]store.TriggerState{
			"old/0/0": store.TriggerWaiting, "new/0/0": store.TriggerFired})
	})

	s.spec("a parked delivery is found by the key that a start brings", func(w *world) {
		_, rollout := w.suspended(list(startable("i")))
		c := w.claimTrigger(w.a)
		d := byKey("job-77", `1`)
		d.Source = "http"
		equal(w, "disposition", w.deliver(w.another(), d), store.Parked)
		w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-77", time.Second))
		equal(w, "state", w.trigger(store.TriggerID(rollout, "i", 0, 0)).State, store.TriggerFired)
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
	})

	s.spec("a parked fault harms its own rollout only, and leaves it consistent", func(w *world) {
		d := byKey("key-i", ``)
		d.Status, d.Payload, d.Fault = store.StatusFaulted, nil, fault.New("job", "boom")
		w.deliver(w.a, d)
		runID, rollouts := w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		done := w.suspend(w.a, claims[0], external("i"), startable("j"), external("k"))
		equal(w, "committed", done, store.Committed{State: eval.StateFaulted})
		equal(w, "triggers", states(w.view(runID, rollouts[0]).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerFaulted, "j/0/0": store.TriggerAbandoned, "k/0/0": store.TriggerAbandoned})
		equal(w, "its fault", w.view(runID, rollouts[0]).Fault, fault.New("job", "boom"))
		w.noTriggerDue(w.a)
		equal(w, "the other", w.view(runID, rollouts[1]).State, eval.StateRunning)
		var types []store.EventType
		for _, e := range w.events(runID) {
			if e.RolloutID == rollouts[0] {
				types = append(types, e.Type)
			}
		}
		equal(w, "events", types, []store.EventType{
			store.RolloutStarted, store.RolloutSuspended, store.TriggerDelivered, store.RolloutFinished})
	})
}
