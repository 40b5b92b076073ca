package storetest

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/store"
)

func callSpecs(s *suite) {
	key := store.CallKey{Server: "rpa", Tool: "run", Arguments: "0123"}

	s.spec("a call that has not ended is found again, with what it has started", func(w *world) {
		w.create(1)
		c := w.claim(w.a)
		first, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "first", first, store.Call{ID: store.CallID(c.ID, key, 0), New: true})
		again, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "again, before anything is known", again, store.Call{ID: first.ID})
		w.must(w.a.CallStarted(w.ctx, c.Token, first.ID, json.RawMessage(`{"job":1}`)))
		again, err = w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "again", again, store.Call{ID: first.ID, Work: json.RawMessage(`{"job":1}`)})
		w.must(w.a.CallStarted(w.ctx, c.Token, first.ID, json.RawMessage(`{"job":2}`)))
		work, err := w.a.CallWork(w.ctx, c.RolloutID, first.ID)
		w.must(err)
		equal(w, "what is known last", string(work), `{"job":2}`)
		if _, err := w.a.CallWork(w.ctx, c.RolloutID, "another"); !errors.Is(err, store.ErrNotFound) {
			w.Errorf("the work of a call that there is not: %v", err)
		}
	})

	s.spec("after the end of a call an equal one is another", func(w *world) {
		w.create(1)
		c := w.claim(w.a)
		first, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		w.must(w.a.EndCall(w.ctx, c.Token, first.ID))
		second, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "second", second, store.Call{ID: store.CallID(c.ID, key, 1), New: true})
	})

	s.spec("an attempt that is repeated finds the calls of the one before in their order", func(w *world) {
		w.create(1)
		c := w.claim(w.a)
		first, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		w.must(w.a.CallStarted(w.ctx, c.Token, first.ID, json.RawMessage(`{"job":1}`)))
		w.must(w.a.EndCall(w.ctx, c.Token, first.ID))
		second, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		w.must(w.a.EndCall(w.ctx, c.Token, second.ID)) // an ordinary result
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeInterrupted})

		c = w.claim(w.a)
		again, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "first again", again, store.Call{ID: first.ID, Work: json.RawMessage(`{"job":1}`)})
		w.must(w.a.EndCall(w.ctx, c.Token, first.ID))
		again, err = w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "second again: it has started nothing", again, store.Call{ID: second.ID, New: true})
		again, err = w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		equal(w, "and is now open", again, store.Call{ID: second.ID})
	})

	s.spec("calls differ by server, tool and arguments", func(w *world) {
		w.create(1)
		c := w.claim(w.a)
		seen := map[string]bool{}
		for _, k := range []store.CallKey{key, {Server: "b", Tool: "run", Arguments: "0123"},
			{Server: "rpa", Tool: "b", Arguments: "0123"}, {Server: "rpa", Tool: "run", Arguments: "b"}} {
			call, err := w.a.BeginCall(w.ctx, c.Token, k)
			w.must(err)
			equal(w, "new", call.New, true)
			seen[call.ID] = true
		}
		equal(w, "ids", len(seen), 4)
	})

	s.spec("who has lost the rollout records no call", func(w *world) {
		w.create(1)
		c := w.claim(w.a)
		call, err := w.a.BeginCall(w.ctx, c.Token, key)
		w.must(err)
		w.advance(2 * lease)
		b := w.another()
		taken := w.claim(b)
		if _, err := w.a.BeginCall(w.ctx, c.Token, key); !errors.Is(err, store.ErrFenced) {
			w.Errorf("begin: %v", err)
		}
		if err := w.a.CallStarted(w.ctx, c.Token, call.ID, nil); !errors.Is(err, store.ErrFenced) {
			w.Errorf("started: %v", err)
		}
		if err := w.a.EndCall(w.ctx, c.Token, call.ID); !errors.Is(err, store.ErrFenced) {
			w.Errorf("end: %v", err)
		}
		found, err := b.BeginCall(w.ctx, taken.Token, key)
		w.must(err)
		equal(w, "the other finds it", found, store.Call{ID: call.ID})
	})
}
