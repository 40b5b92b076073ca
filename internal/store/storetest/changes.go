package storetest

import "time"

func changeSpecs(s *suite) {
	closed := func(w *world, ch <-chan struct{}, what string) {
		w.Helper()
		select {
		case <-ch:
		case <-time.After(time.Minute):
			w.Fatalf("%s was not told", what)
		}
	}
	open := func(w *world, ch <-chan struct{}, what string) {
		w.Helper()
		select {
		case <-ch:
			w.Errorf("%s was told for nothing", what)
		default:
		}
	}

	s.spec("who waits for a run is told of its changes, by whichever process", func(w *world) {
		first, _ := w.create(1)
		second, _ := w.create(1)
		b := w.another()
		one, again, two, all := w.a.Changed(first), w.a.Changed(first), w.a.Changed(second), w.a.Changed("")
		if one != again {
			w.Error("each who waits has a channel of its own")
		}
		_, err := w.a.Cancel(w.ctx, first)
		w.must(err)
		closed(w, one, "its own commit")
		closed(w, all, "any run")
		open(w, two, "the other run")
		all = w.a.Changed("")
		_, err = b.Cancel(w.ctx, second)
		w.must(err)
		closed(w, two, "another's commit")
		closed(w, all, "any run, by another")
	})

	s.spec("every change is told, also those that give nobody anything to do", func(w *world) {
		id, _ := w.create(1)
		b := w.another()
		here, there := w.a.Changed(id), b.Changed(id)
		claim := w.claim(w.a)
		closed(w, here, "the claim")
		closed(w, there, "another's claim")
		here, there = w.a.Changed(id), b.Changed(id)
		w.commit(w.a, claim, completed)
		closed(w, here, "the end of the segment")
		closed(w, there, "the end of another's segment")
	})

	s.spec("a store that is closed lets nobody wait", func(w *world) {
		b := w.another()
		before := b.Changed("one")
		w.must(b.Close())
		closed(w, before, "who waited")
		closed(w, b.Changed("one"), "who comes late")
	})
}
