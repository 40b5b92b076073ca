package storetest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// block is a block; the specification does not look into it.
func block(name string) store.Block { return store.Block{Sum: name, Data: []byte("data of " + name)} }

// Of the vectors of portable suspensions these are 4, 36, 37 and 38: the others are in package snapshot.
func blockSpecs(s *suite) {
	there := func(w *world, sums ...string) (out []string) {
		w.Helper()
		w.must(w.another().Blocks(w.ctx, sums, func(b store.Block) error {
			if string(b.Data) != "data of "+b.Sum {
				w.Errorf("block %s has %q", b.Sum, b.Data)
			}
			out = append(out, b.Sum)
			return nil
		}))
		slices.Sort(out)
		return out
	}
	missing := func(w *world, sums ...string) []string {
		w.Helper()
		out, err := w.a.Missing(w.ctx, sums)
		w.must(err)
		slices.Sort(out)
		return out
	}
	prune := func(w *world, age time.Duration) int {
		w.Helper()
		n, err := w.a.PruneBlocks(w.ctx, age)
		w.must(err)
		return n
	}
	kept := func(doc string, sums ...string) *store.Kept {
		return &store.Kept{Files: json.RawMessage(doc), Blocks: sums}
	}

	s.spec("blocks are stored once, and read by every process", func(w *world) {
		equal(w, "missing of none", missing(w), nil)
		equal(w, "missing at first", missing(w, "a", "b", "a"), []string{"a", "a", "b"})
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a"), block("b"), block("a")}))
		w.must(w.another().PutBlocks(w.ctx, []store.Block{block("b"), block("c")}))
		equal(w, "missing then", missing(w, "a", "b", "c", "d"), []string{"d"})
		equal(w, "read", there(w, "c", "a", "x"), []string{"a", "c"})
		var many []store.Block
		var sums []string
		for i := range 40 {
			many, sums = append(many, block(string(rune('A'+i)))), append(sums, string(rune('A'+i)))
		}
		w.must(w.a.PutBlocks(w.ctx, many))
		equal(w, "many", len(there(w, sums...)), 40)
	})

	s.spec("a damaged block is replaced by whoever has it", func(w *world) {
		w.must(w.a.PutBlocks(w.ctx, []store.Block{{Sum: "a", Data: []byte("damaged")}}))
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a")}))
		equal(w, "read", there(w, "a"), []string{"a"})
	})

	s.spec("a suspension names its blocks, and the next names others", func(w *world) {
		runID, rollouts := w.create(1)
		id := rollouts[0]
		_, err := w.a.Kept(w.ctx, id)
		w.refused("before", err, store.ErrNotFound)
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a"), block("b"), block("c")}))
		c := w.claim(w.a)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("i")),
			Kept: kept(`{"n":1}`, "a", "b", "a")})
		k, err := w.another().Kept(w.ctx, id)
		w.must(err)
		equal(w, "kept", [2]any{k.Segment, string(k.Files)}, [2]any{1, `{"n":1}`})

		w.advance(48 * time.Hour)
		equal(w, "pruned", prune(w, 24*time.Hour), 1)
		equal(w, "left", there(w, "a", "b", "c"), []string{"a", "b"})

		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("c")}))
		w.deliver(w.a, payload(store.TriggerID(id, "i", 0, 0), `1`))
		c = w.claim(w.a)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("j")),
			Kept: kept(`{"n":2}`, "b", "c")})
		w.advance(48 * time.Hour)
		equal(w, "pruned then", prune(w, 24*time.Hour), 1)
		equal(w, "left then", there(w, "a", "b", "c"), []string{"b", "c"})

		w.cancel(runID)
		equal(w, "pruned at the end", prune(w, 24*time.Hour), 2)
		w.must(w.a.Remove(w.ctx, runID))
		_, err = w.a.Kept(w.ctx, id)
		w.refused("after", err, store.ErrNotFound)
	})

	s.spec("blocks of two rollouts stay until neither needs them", func(w *world) {
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a")}))
		runID, rollouts := w.create(2)
		claims, err := w.a.Claim(w.ctx, runID, 2)
		w.must(err)
		for _, c := range claims {
			w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("i")),
				Kept: kept(`{}`, "a")})
		}
		w.advance(48 * time.Hour)
		w.cancel(rollouts[0])
		equal(w, "pruned while one needs it", prune(w, 0), 0)
		w.cancel(runID)
		equal(w, "pruned then", prune(w, 0), 1)
	})

	s.spec("a block that somebody is about to need is not removed", func(w *world) {
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a"), block("b")}))
		w.advance(48 * time.Hour)
		equal(w, "missing", missing(w, "a"), nil) // of a suspension whose commit is to come
		w.advance(time.Hour)
		equal(w, "pruned", prune(w, 24*time.Hour), 1)
		equal(w, "left", there(w, "a", "b"), []string{"a"})
	})

	s.spec("a suspension whose blocks are gone is refused whole", func(w *world) {
		_, rollouts := w.create(1)
		c := w.claim(w.a)
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a")}))
		end := store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("i")), Kept: kept(`{}`, "a", "b")}
		if _, err := w.a.CommitSegment(w.ctx, c.Token, end); err == nil {
			w.Fatal("it was committed without its files")
		}
		_, err := w.a.Kept(w.ctx, rollouts[0])
		w.refused("kept", err, store.ErrNotFound)
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("b")}))
		w.commit(w.a, c, end)
	})

	s.spec("the blocks of a plan stay for as long as the run", func(w *world) {
		plan := store.Plan{RunID: "r", Data: json.RawMessage(`{}`), Blocks: []string{"a", "b", "a"},
			Evaluations: []store.Evaluation{{ID: "e", Data: json.RawMessage(`{}`)}},
			Rollouts:    []store.PlannedRollout{{ID: store.RolloutID("r", "e", "agent", 1), Agent: "agent", Epoch: 1}}}
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a"), block("c")}))
		if created, err := w.a.CreateRun(w.ctx, plan); err == nil || created {
			w.Fatalf("it was created without its files: %v, %v", created, err)
		}
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("b")}))
		for range 2 { // the second time it is there
			_, err := w.a.CreateRun(w.ctx, plan)
			w.must(err)
		}
		w.advance(48 * time.Hour)
		equal(w, "pruned", prune(w, 0), 1)
		w.cancel("r")
		equal(w, "pruned when it is final", prune(w, 0), 0)
		equal(w, "left", there(w, "a", "b", "c"), []string{"a", "b"})
		w.must(w.a.Remove(w.ctx, "r"))
		equal(w, "pruned when it is removed", prune(w, 0), 2)
	})

	s.spec("what an overtaken holder names is not referred to", func(w *world) {
		_, rollouts := w.create(1)
		old := w.claim(w.a)
		w.must(w.a.PutBlocks(w.ctx, []store.Block{block("a"), block("b")}))
		w.advance(lease + time.Second)
		b := w.another()
		c := w.claim(b)
		w.commit(b, c, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("i")), Kept: kept(`{"by":"b"}`, "b")})
		_, err := w.a.CommitSegment(w.ctx, old.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended,
			Triggers: list(external("i")), Kept: kept(`{"by":"a"}`, "a")})
		w.refused("the late commit", err, store.ErrFenced)
		k, err := w.a.Kept(w.ctx, rollouts[0])
		w.must(err)
		equal(w, "kept", string(k.Files), `{"by":"b"}`)
		equal(w, "pruned", prune(w, 0), 1)
		equal(w, "left", there(w, "a", "b"), []string{"b"})
	})
}
