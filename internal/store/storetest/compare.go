package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// playedView is the run as it was seen after an operation.
type playedView struct {
	run      store.Run
	rollouts []store.RolloutView
	events   int64
	// finished counts the ends that were told of each rollout, and of the run under its id.
	finished map[string]int
}

// shown is what the model and the store must agree on.
type shown struct {
	State                                            eval.State
	Scorings                                         int
	Segment, Attempt, Failures, Suspensions, Results int
	Triggers                                         []shownTrigger
}

type shownTrigger struct {
	ID, Key, Payload string
	State            store.TriggerState
	TakenBy          int
	Status           store.Status
	Deadline         time.Time
}

// compare checks the store, as store i sees it, against the model. It also checks what must hold of
// any store, whatever the model says.
func (p *player) compare(i int) error {
	var view playedView
	if err := p.w.a.Snapshot(p.w.ctx, p.runID, func(v store.View) error {
		view.run = v.Run()
		return v.Rollouts(func(o store.RolloutView) error {
			view.rollouts = append(view.rollouts, o)
			return nil
		})
	}); err != nil {
		return err
	}
	if len(view.rollouts) != len(p.model.rollouts) {
		return fmt.Errorf("%d rollouts of %d: some were lost", len(view.rollouts), len(p.model.rollouts))
	}
	for i, r := range p.model.rollouts {
		if diff := cmp.Diff(p.shown(r), shownOf(view.rollouts[i])); diff != "" {
			return fmt.Errorf("rollout %d (-model +store):\n%s", i, diff)
		}
	}
	b, err := p.stores[i].Backlog(p.w.ctx, p.runID)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(p.model.backlog(i), b); diff != "" {
		return fmt.Errorf("backlog of store %d (-model +store):\n%s", i, diff)
	}
	if err := p.checkEvents(&view); err != nil {
		return err
	}
	err = invariants(p.last, view)
	p.last = view
	return err
}

func (p *player) shown(r *modelRollout) shown {
	out := shown{r.state, r.scorings, r.segment, r.attempt, r.failures, r.suspensions, r.results, nil}
	for _, g := range p.model.triggers {
		if g.rollout == r {
			out.Triggers = append(out.Triggers, shownTrigger{g.id, g.key, g.payload, g.state, g.takenBy, g.status, g.deadline})
		}
	}
	return out
}

func shownOf(o store.RolloutView) shown {
	out := shown{o.State, o.Scorings, o.Segment, o.Attempt, o.Failures, o.Suspensions, len(o.Results), nil}
	for _, g := range o.Triggers {
		out.Triggers = append(out.Triggers, shownTrigger{
			g.ID, g.ItemKey, string(g.Payload), g.State, g.TakenBy, g.Status, g.Deadline})
	}
	return out
}

// checkEvents reads the events since the last time: none is missing, and an end is told once, when
// it is there.
func (p *player) checkEvents(view *playedView) error {
	view.finished = map[string]int{}
	for id, n := range p.last.finished {
		view.finished[id] = n
	}
	view.events = p.last.events
	events, err := p.w.a.Events(p.w.ctx, p.runID, view.events, 1000)
	if err != nil {
		return err
	}
	for _, e := range events {
		if view.events++; e.Seq != view.events {
			return fmt.Errorf("event %d after %d", e.Seq, view.events-1)
		}
		if e.Type == store.RolloutFinished {
			view.finished[e.RolloutID]++
		}
		if e.Type == store.RunFinished {
			view.finished[p.runID]++
		}
	}
	if view.events != view.run.Seq {
		return fmt.Errorf("the last event is %d, the run says %d", view.events, view.run.Seq)
	}
	open := 0
	for _, o := range view.rollouts {
		n := 0
		if o.State.IsTerminal() {
			n = 1
		} else {
			open++
		}
		if view.finished[o.ID] != n {
			return fmt.Errorf("rollout %s is %s and was finished %d times", o.ID, o.State, view.finished[o.ID])
		}
	}
	if finished := view.finished[p.runID]; (open == 0) != view.run.Final() || (open == 0) != (finished == 1) ||
		finished > 1 {
		return fmt.Errorf("%d rollouts are open, the run is final: %v, and was finished %d times", open, view.run.Final(),
			finished)
	}
	return nil
}

// invariants checks what one operation may change.
func invariants(before, after playedView) error {
	var counts store.Counts
	for i, o := range after.rollouts {
		n := map[eval.State]*int{
			eval.StatePending: &counts.Pending, eval.StateRunning: &counts.Running, eval.StateSuspended: &counts.Suspended,
			eval.StateEvaluating: &counts.Evaluating, eval.StateScoring: &counts.Scoring, eval.StateCompleted: &counts.Completed,
			eval.StateFaulted: &counts.Faulted, eval.StateCancelled: &counts.Cancelled}
		*n[o.State]++
		counts.Total++
		if o.State == eval.StateScoring && o.Score != nil {
			return fmt.Errorf("rollout %s waits for its evaluators and has a score", o.ID)
		}
		if o.State == eval.StateSuspended && (len(o.Results) > 0 || o.Score != nil) {
			return fmt.Errorf("rollout %s is suspended and scored", o.ID)
		}
		if age := o.StateSince.Sub(o.CreatedAt); o.Clocks.Wall() != age {
			return fmt.Errorf("rollout %s: the clocks %+v do not add up to %v", o.ID, o.Clocks, age)
		}
		for j, g := range o.Segments {
			if j > 0 && g.Number == o.Segments[j-1].Number && g.Attempt != o.Segments[j-1].Attempt+1 ||
				(j == 0 || g.Number != o.Segments[j-1].Number) && g.Attempt != 1 {
				return fmt.Errorf("rollout %s: an attempt is missing before %d.%d", o.ID, g.Number, g.Attempt)
			}
		}
		if before.rollouts == nil {
			continue
		}
		was := before.rollouts[i]
		if was.State == eval.StateScoring && o.Segment != was.Segment {
			return fmt.Errorf("rollout %s waited for its evaluators, and its agent runs again", o.ID)
		}
		if n := len(was.Results); len(o.Results) < n || n > 0 && !cmp.Equal(was.Results, o.Results[:n]) {
			return fmt.Errorf("rollout %s: a result was lost or has changed", o.ID)
		}
		if o.State != was.State && !was.State.CanBecome(o.State) {
			return fmt.Errorf("rollout %s was %s and is %s", o.ID, was.State, o.State)
		}
		if was.State.IsTerminal() && !cmp.Equal(was.Rollout, o.Rollout) {
			return fmt.Errorf("rollout %s had ended and changed:\n%s", o.ID, cmp.Diff(was.Rollout, o.Rollout))
		}
		if n := len(was.Segments); len(o.Segments) < n || n > 0 && !cmp.Equal(was.Segments, o.Segments[:n]) {
			return fmt.Errorf("rollout %s: a segment that had ended has changed", o.ID)
		}
		for j, g := range was.Triggers {
			if now := o.Triggers[j]; g.Status != "" && (now.Status != g.Status || string(now.Payload) != string(g.Payload)) {
				return fmt.Errorf("trigger %s: its first delivery did not win", g.ID)
			}
		}
	}
	if counts != after.run.Counts {
		return fmt.Errorf("counts %+v, but there are %+v", after.run.Counts, counts)
	}
	if after.run.Revision < before.run.Revision ||
		after.run.Revision == before.run.Revision && document(before) != document(after) {
		return fmt.Errorf("the revision %d stayed, but the run changed:\n%s", after.run.Revision,
			cmp.Diff(document(before), document(after)))
	}
	return nil
}

// document is what may be shown of a run.
func document(v playedView) string {
	type trigger struct {
		ID, Key  string
		State    store.TriggerState
		Deadline string
	}
	var out []any
	for _, o := range v.rollouts {
		out = append(out, o.Rollout, o.Segments, o.Results)
		for _, g := range o.Triggers {
			out = append(out, trigger{g.ID, g.ItemKey, g.State, g.Deadline.String()})
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(err) // these types always marshal
	}
	return string(data)
}
