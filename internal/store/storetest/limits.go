package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func (w *world) limit(kind store.LimitKind, name string, most int) {
	w.Helper()
	w.must(w.a.SetLimits(w.ctx, store.Limit{Kind: kind, Name: name, Most: most}))
}

func (w *world) claims(s Store, runID string, limit int) []store.Claim {
	w.Helper()
	claims, err := s.Claim(w.ctx, runID, limit)
	w.must(err)
	return claims
}

// agents gives the rollouts of a plan agents in turn.
func agents(names ...string) func(*store.Plan) {
	return func(p *store.Plan) {
		for i := range p.Rollouts {
			p.Rollouts[i].Agent = names[i%len(names)]
		}
	}
}

func prioritized(priority int) func(*store.Plan) {
	return func(p *store.Plan) { p.Priority = priority }
}

// byRun counts claims by their runs.
func byRun(claims []store.Claim) map[string]int {
	out := map[string]int{}
	for _, c := range claims {
		out[c.RunID]++
	}
	return out
}

func limitSpecs(s *suite) {
	s.spec("no more agents run than all limits allow", func(w *world) {
		_, _ = w.create(6, agents("x", "x", "y"))
		w.limit(store.LimitAgent, "x", 2)
		w.limit(store.LimitAll, "", 3)
		b := w.another()
		first := w.claims(w.a, "", 10)
		equal(w, "what the first process claims", len(first), 3)
		equal(w, "what is left for the second", len(w.claims(b, "", 10)), 0)
		backlog, err := b.Backlog(w.ctx, "")
		w.must(err)
		equal(w, "the backlog", backlog, store.Backlog{Held: 3, Limited: 3, NextDue: w.Now().Add(lease)})
		equal(w, "which is not idle", backlog.Idle(), false)
		limits, err := b.Limits(w.ctx)
		w.must(err)
		equal(w, "the limits", limits, []store.Limit{{Kind: store.LimitAll, Most: 3, Used: 3, Waiting: 3},
			{Kind: store.LimitAgent, Name: "x", Most: 2, Used: 2, Waiting: 2}})

		w.commit(w.a, first[0], completed)
		equal(w, "a committed segment frees its place, also before it is evaluated", len(w.claims(b, "", 10)), 1)
		w.limit(store.LimitAll, "", -1)
		equal(w, "without the limit of all", len(w.claims(b, "", 10)), 1)
		limits, err = b.Limits(w.ctx)
		w.must(err)
		equal(w, "what is left of the limits", limits, []store.Limit{{Kind: store.LimitAgent, Name: "x", Most: 2, Used: 2, Waiting: 1}})
	})

	s.spec("a lower limit ends nobody, and the places of the dead are free when they are taken over", func(w *world) {
		_, _ = w.create(4)
		w.limit(store.LimitAgent, "agent", 2)
		claims := w.claims(w.a, "", 10)
		w.limit(store.LimitAgent, "agent", 1)
		held, _ := w.renew(w.a, claims)
		equal(w, "held", len(held), 2)
		w.commit(w.a, claims[0], completed)
		b := w.another()
		equal(w, "while one still runs", len(w.claims(b, "", 10)), 0)
		w.advance(lease)
		again := w.claims(b, "", 10)
		equal(w, "what the other one held is taken over, and nothing more: of its evaluators there is no limit", len(again), 2)
		w.limit(store.LimitAgent, "agent", 0)
		for _, c := range again {
			if c.State == "running" {
				w.commit(b, c, completed)
			}
		}
		equal(w, "with the limit 0", len(w.claims(b, "", 10)), 0)
	})

	s.spec("a run of few rollouts is not kept waiting by one of many", func(w *world) {
		large, _ := w.create(200)
		w.advance(time.Second)
		small, _ := w.create(10)
		var running []store.Claim
		done := map[string]int{}
		for done[small] < 10 {
			running = append(running, w.claims(w.a, "", 4-len(running))...)
			w.advance(time.Second)
			_, _ = w.renew(w.a, running)
			w.commit(w.a, running[0], store.SegmentEnd{Outcome: store.OutcomeCancelled})
			done[running[0].RunID]++
			running = running[1:]
		}
		if done[large] >= 100 {
			w.Fatalf("the small run has ended after %d of the large one", done[large])
		}
		equal(w, "at once both", len(byRun(w.claims(w.a, "", 4))), 1) // the small one has nothing left
	})

	s.spec("runs of higher priority go first, and among equals each has its turn", func(w *world) {
		low, _ := w.create(4)
		w.advance(time.Second)
		one, _ := w.create(4, prioritized(5))
		two, _ := w.create(4, prioritized(5))
		equal(w, "first", byRun(w.claims(w.a, "", 4)), map[string]int{one: 2, two: 2})
		equal(w, "then", byRun(w.claims(w.a, "", 6)), map[string]int{one: 2, two: 2, low: 2})
	})

	s.spec("one process with one place serves all runs in turn", func(w *world) {
		large, _ := w.create(50)
		w.advance(time.Second)
		small, _ := w.create(10)
		turns := map[string]int{}
		for range 20 {
			c := w.claims(w.a, "", 1)[0]
			turns[c.RunID]++
			w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled})
		}
		equal(w, "turns", turns, map[string]int{large: 10, small: 10})
	})

	s.spec("a place at a limited agent is shared by what runs of that agent", func(w *world) {
		w.limit(store.LimitAgent, "x", 1)
		busy, _ := w.create(40, agents("x", "y"))
		first := w.claims(w.a, "", 6)
		w.advance(time.Second)
		other, _ := w.create(10, agents("x"))
		turns := map[string]int{}
		for _, c := range first {
			if c.Agent == "x" {
				w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled})
			}
		}
		for range 10 {
			claims := w.claims(w.a, "", 2) // of the free place, and of y
			for _, c := range claims {
				if c.Agent == "x" {
					turns[c.RunID]++
					w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled})
				}
			}
		}
		equal(w, "turns", turns, map[string]int{busy: 5, other: 5})
	})

	s.spec("processes that claim at once stay below the limits, and everything ends", func(w *world) {
		r := rand.New(rand.NewPCG(7, 23))
		names := []string{"x", "y", "z"}
		most := map[string]int{"x": 1 + r.IntN(2), "y": 2 + r.IntN(2)}
		for name, n := range most {
			w.limit(store.LimitAgent, name, n)
		}
		w.limit(store.LimitAll, "", 5)
		total := 0
		for i := range 4 {
			n := 6 + r.IntN(6)
			total += n
			_, _ = w.create(n, agents(names[i%3], names[r.IntN(3)]), prioritized(i%2))
		}
		var mu sync.Mutex
		committed := sync.NewCond(&mu)
		running, ended, commits, waiting := map[string]int{}, 0, 0, 0
		began := func(c store.Claim) error {
			mu.Lock()
			defer mu.Unlock()
			running[c.Agent]++
			all := 0
			for _, n := range running {
				all += n
			}
			if n, limited := most[c.Agent]; all > 5 || limited && running[c.Agent] > n {
				return fmt.Errorf("too many run: %v", running)
			}
			return nil
		}
		const processes = 3
		// next waits until something was committed since a claim that found nothing. It reports whether to
		// claim again: not when everything ended, nor when all of them wait, as then nothing ever will be.
		next := func(seen int) bool {
			mu.Lock()
			defer mu.Unlock()
			waiting++
			for commits == seen && ended < total && waiting < processes {
				committed.Wait()
			}
			if commits == seen {
				committed.Broadcast()
				return false
			}
			waiting--
			return ended < total
		}
		var group sync.WaitGroup
		for i := range processes {
			process := w.another()
			group.Go(func() {
				for again := true; again; {
					mu.Lock()
					seen := commits
					mu.Unlock()
					claims, err := process.Claim(w.ctx, "", 1+i)
					for _, c := range claims {
						if err == nil {
							err = began(c)
						}
					}
					for _, c := range claims {
						mu.Lock() // what ends is counted before its place is free
						running[c.Agent]--
						ended++
						mu.Unlock()
						if err == nil {
							_, err = process.CommitSegment(w.ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeCancelled})
						}
						mu.Lock()
						commits++
						committed.Broadcast()
						mu.Unlock()
					}
					if err != nil {
						w.Error(err)
						mu.Lock()
						waiting++ // for ever, so that the others do not wait for this one
						committed.Broadcast()
						mu.Unlock()
						return
					}
					again = len(claims) > 0 || next(seen)
				}
			})
		}
		group.Wait()
		equal(w, "ended", ended, total)
	})

	s.spec("the limit of a source holds back the start of its jobs, but not their end", func(w *world) {
		w.limit(store.LimitSource, "http", 1)
		_, rollout := w.suspended(list(startable("i")))
		runID, rollouts := w.create(1)
		w.commit(w.a, w.claims(w.a, runID, 1)[0], store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: list(startable("j")), SuspendTimeout: time.Hour})
		started := w.claimTrigger(w.a)
		equal(w, "the one whose job is started", started.RolloutID, rollout)
		w.must(w.a.TriggerStarted(w.ctx, started.TriggerToken, "job", time.Minute))
		w.noTriggerDue(w.a)
		equal(w, "what is left to do until the deadline", w.backlog(w.a), store.Backlog{NextDue: w.Now().Add(time.Minute)})
		limits, err := w.a.Limits(w.ctx)
		w.must(err)
		equal(w, "the limit", limits, []store.Limit{{Kind: store.LimitSource, Name: "http", Most: 1, Used: 1, Waiting: 1}})
		equal(w, "the answer", w.deliver(w.a, payload(started.TriggerID, "1")), store.Accepted)
		due, err := w.a.ClaimTriggers(w.ctx, "", 10)
		w.must(err)
		actions := map[string]store.Action{}
		for _, c := range due {
			actions[c.RolloutID] = c.Action
		}
		equal(w, "then the first one is cancelled and the other one starts", actions,
			map[string]store.Action{rollout: store.ActionCancel, rollouts[0]: store.ActionStart})
	})

	s.spec("what a source's limit holds back expires in time", func(w *world) {
		w.limit(store.LimitSource, "http", 0)
		runID, _ := w.create(1)
		w.commit(w.a, w.claims(w.a, runID, 1)[0], store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: list(startable("j")), SuspendTimeout: time.Hour})
		w.noTriggerDue(w.a)
		due, err := w.a.NextDue(w.ctx, "")
		w.must(err)
		equal(w, "next", due, w.Now().Add(time.Hour))
		equal(w, "the backlog", w.backlog(w.a), store.Backlog{NextDue: due})
		w.advance(time.Hour)
		equal(w, "then", w.claimTrigger(w.a).Action, store.ActionExpire)
	})

	s.spec("a limit has a kind, and a name unless it is of all", func(w *world) {
		for _, l := range []store.Limit{{Kind: "run", Name: "x"}, {Kind: store.LimitAll, Name: "x"}, {Kind: store.LimitAgent}} {
			if err := w.a.SetLimits(w.ctx, store.Limit{Kind: store.LimitSource, Name: "s", Most: 1}, l); err == nil {
				w.Errorf("%+v was set", l)
			}
		}
		limits, err := w.a.Limits(w.ctx)
		w.must(err)
		equal(w, "limits", len(limits), 0)
	})
}

func (w *world) backlog(s Store) store.Backlog {
	w.Helper()
	b, err := s.Backlog(w.ctx, "")
	w.must(err)
	return b
}

func tagged(tags ...string) func(*store.Plan) {
	return func(p *store.Plan) {
		for i := range p.Rollouts {
			p.Rollouts[i].Tags = tags
		}
	}
}

func tagSpecs(s *suite) {
	has := func(tags ...string) func(*store.Options) { return func(o *store.Options) { o.Tags = tags } }

	s.spec("a rollout is claimed by who has all of its tags", func(w *world) {
		_, plain := w.create(1)
		w.advance(time.Second)
		_, gpu := w.create(1, tagged("gpu"))
		w.advance(time.Second)
		_, both := w.create(1, tagged("linux", "gpu", "gpu"))
		linux, all := w.another(has("linux")), w.another(has("gpu", "linux", "more"))
		equal(w, "without tags", w.backlog(w.a), store.Backlog{Runnable: 1, Unfit: 2})
		queues, err := w.a.Queues(w.ctx)
		w.must(err)
		equal(w, "queues", queues, []store.Queued{{Ready: 1, Oldest: w.Now().Add(-2 * time.Second)},
			{Tags: []string{"gpu", "linux"}, Ready: 1, Oldest: w.Now()}, {Tags: []string{"gpu"}, Ready: 1, Oldest: w.Now().Add(-time.Second)}})
		equal(w, "by one of the tags", ids(w.claims(linux, "", 10)), plain)
		equal(w, "by all", ids(w.claims(all, "", 10)), []string{gpu[0], both[0]})
		w.claimsNothing(w.a)
		w.advance(lease)
		equal(w, "what was left behind", ids(w.claims(w.a, "", 10)), plain)
		equal(w, "the rest of it", w.backlog(w.a), store.Backlog{Held: 1, Unfit: 2})
		queues, err = w.a.Queues(w.ctx)
		w.must(err)
		equal(w, "queues of what is held", queues, []store.Queued{{Held: 1}, {Tags: []string{"gpu", "linux"}, Held: 1}, {Tags: []string{"gpu"}, Held: 1}})
	})

	s.spec("what is held back by a limit or suspended is not ready", func(w *world) {
		_, _ = w.create(3, tagged("gpu"))
		w.limit(store.LimitAgent, "agent", 1)
		gpu := w.another(has("gpu"))
		w.suspend(gpu, w.claims(gpu, "", 10)[0], external("i"))
		_ = w.claims(gpu, "", 10)
		queues, err := w.a.Queues(w.ctx)
		w.must(err)
		equal(w, "queues", queues, []store.Queued{{Tags: []string{"gpu"}, Limited: 1, Held: 1, Oldest: w.Now()}})
	})

	s.spec("workers say what they have and what they lack, as long as they live", func(w *world) {
		gpu := w.another(has("linux", "gpu"))
		w.must(gpu.Announce(w.ctx, store.Worker{Name: "b", Version: "1"}))
		w.must(w.a.Announce(w.ctx, store.Worker{Name: "a", Version: "2"}))
		w.advance(store.WorkerKept * 2 / 3)
		w.must(gpu.Announce(w.ctx, store.Worker{Name: "b", Version: "1", Lacks: []string{"no bwrap"}}))
		seen := w.Now()
		workers, err := w.a.Workers(w.ctx)
		w.must(err)
		equal(w, "workers", workers, []store.Worker{
			{ID: w.a.Holder(), Name: "a", Tags: []string{}, Version: "2", Lacks: []string{}, SeenAt: seen.Add(-store.WorkerKept * 2 / 3)},
			{ID: gpu.Holder(), Name: "b", Tags: []string{"linux", "gpu"}, Version: "1", Lacks: []string{"no bwrap"}, SeenAt: seen}})
		_, _ = w.create(1, tagged("gpu"))
		_, _ = w.create(1, tagged("gpu", "arm"))
		_, _ = w.create(1)
		queues, err := w.a.Queues(w.ctx)
		w.must(err)
		equal(w, "what nobody has", store.Unmet(queues, workers), [][]string{{"arm", "gpu"}})
		w.advance(store.WorkerKept * 2 / 3)
		workers, err = w.a.Workers(w.ctx)
		w.must(err)
		equal(w, "those that live", len(workers), 1)
		w.must(gpu.Leave(w.ctx))
		workers, err = w.a.Workers(w.ctx)
		w.must(err)
		equal(w, "after it has left", store.Unmet(queues, workers), [][]string{{"arm", "gpu"}, {"gpu"}})
	})
}
