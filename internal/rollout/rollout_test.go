package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// Given a suspended rollout that is answered: its second segment completes it, and the engine was
// told of the triggers.
func TestARolloutIsSuspendedAndResumed(t *testing.T) {
	w := newWorld(t, suspendsOnce+`printf '{"in": %s}' "$in"`, nil)
	if r := w.run(); r.State() != eval.StateSuspended || w.jobsChanged != 1 {
		t.Errorf("it is %s, and the engine was told %d times", r.State(), w.jobsChanged)
	}
	w.deliver()
	w.run()
	o := w.view()
	if o.State != eval.StateCompleted || o.Segment != 2 || len(o.Triggers) != 1 || o.Triggers[0].State != "consumed" {
		t.Errorf("it is %s in segment %d with the triggers %+v", o.State, o.Segment, o.Triggers)
	}
	if _, err := os.Stat(filepath.Join(w.store.Dir(), "work", o.ID, "segment-2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy of the workspace is still there: %v", err)
	}
}

// Invariant: nothing finishes twice. Given a process that was stopped for longer than its lease
// while another one took the rollout over: it neither empties the workspace nor commits anything.
func TestAnOvertakenHolderChangesNothing(t *testing.T) {
	now := time.Now()
	w := newWorld(t, `echo x >> "$WORLD/ran"; `+completes, nil)
	old := w.claim()
	old.held.claimed = now.Add(-time.Hour) // it was stopped since
	mine := filepath.Join(old.held.host.Store.Dir(), "work", old.held.claim.RolloutID, "workspace", "mine")
	if _, err := w.store.CommitSegment(t.Context(), old.held.claim.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted, Fault: interrupted("taken over")}); err != nil {
		t.Fatal(err)
	}
	other := w.open()
	claims, err := other.Claim(t.Context(), w.runID, 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	w.check(os.MkdirAll(filepath.Dir(mine), 0o700))
	w.check(os.WriteFile(mine, nil, 0o600))
	if err := old.Run(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the overtaken holder ended with %v, want ErrFenced", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("the other holder's workspace: %v", err)
	}
	if w.lines("ran") != 0 {
		t.Error("the overtaken holder has started its agent")
	}
	old.held.claimed = now // as if it had been quick
	if err := old.commitSegment(t.Context(), agent.Outcome{Output: json.RawMessage(`{}`)}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("its commit was answered with %v, want ErrFenced", err)
	}
}

// slotAfter is a slot that is there once a function has returned.
type slotAfter func()

func (f slotAfter) Acquire(context.Context) error { f(); return nil }
func (f slotAfter) Release()                      {}

// Invariant: nothing finishes twice. Given a process that was stopped while it waited for a slot,
// for longer than its lease, and another one that has taken the rollout over: it starts no agent in
// the other's folders.
func TestAnOvertakenHolderStartsNoAgent(t *testing.T) {
	w := newWorld(t, `echo x >> "$WORLD/ran"; `+completes, nil)
	old := w.claim()
	old.slot = slotAfter(func() {
		old.held.claimed = time.Now().Add(-time.Hour)
		_, err := w.store.CommitSegment(t.Context(), old.held.claim.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted, Fault: interrupted("taken over")})
		w.check(err)
	})
	if err := old.Run(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the overtaken holder ended with %v, want ErrFenced", err)
	}
	if w.lines("ran") != 0 {
		t.Error("the overtaken holder has started its agent")
	}
}

// Invariant: files come before the commit that names them. The digests of a committed segment are
// those of files that are there.
func TestACommittedSegmentHasItsFiles(t *testing.T) {
	w := newWorld(t, completes, nil)
	w.run()
	segment := w.view().Segments[0]
	if len(segment.Files) == 0 {
		t.Fatal("the segment has no files")
	}
	dir := filepath.Join(w.store.Dir(), "runs", w.runID, "rollouts", segment.RolloutID, "segments", "1.1")
	for _, f := range segment.Files {
		if got, err := digest(dir, f.Name); err != nil || got != f {
			t.Errorf("%s: %+v, %v, want %+v", f.Name, got, err, f)
		}
	}
}

// Given an executor of all runs that lacks a variable of the agent: it leaves the rollout to
// others, whose own attempts nothing was taken from.
func TestARolloutThatLacksAVariableIsLeftToOthers(t *testing.T) {
	w := newWorld(t, completes, func(req *plans.Request) { req.Agents[0].Env["KEY"] = "${THE_KEY}" })
	w.host.AnyRun = true
	if r := w.run(); r.Postponed() == "" || r.State() != eval.StateRunning {
		t.Errorf("postponed %v, state %s", r.Postponed(), r.State())
	}
	o := w.view()
	if o.State != eval.StatePending || o.Failures != 0 || !strings.Contains(o.Segments[0].Fault.Message, "lacks ${THE_KEY}") {
		t.Errorf("it is %s after %d failures: %v", o.State, o.Failures, o.Segments[0].Fault)
	}
}

// Invariant: what is committed, and so shown, has no secret in it: neither output nor fault nor
// what is waited for.
func TestSecretsAreNotCommitted(t *testing.T) {
	const secret = "s3cret-s3cret"
	key := func(req *plans.Request) { req.Agents[0].Env["KEY"] = "${THE_KEY}" }
	for name, script := range map[string]string{
		"an output":    `echo "{\"said\": \"$KEY\"}"`,
		"a fault":      `echo "it broke: $KEY" >&2; exit 3`,
		"an interrupt": `echo "{\"__interrupt__\": {\"name\": \"P\", \"input_arguments\": {\"key\": \"$KEY\"}}}"`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, script, key)
			w.secrets["THE_KEY"] = secret
			w.run()
			o := w.view()
			shown := string(o.Segments[0].Output) + string(o.Segments[0].Info)
			if o.Fault != nil {
				shown += o.Fault.Message
			}
			for _, g := range o.Triggers {
				var spec wait.Spec
				w.check(json.Unmarshal(g.Spec, &spec))
				shown += string(spec.Shown)
			}
			if strings.Contains(shown, secret) || !strings.Contains(shown, "[redacted:THE_KEY]") {
				t.Errorf("it is %s and shows %s", o.State, shown)
			}
		})
	}
}

// Given a rollout whose context was ended because it was cancelled, or because its lease was lost:
// the first is the end of it, after the second its segment is begun again.
func TestWhyAnAgentWasEndedDecides(t *testing.T) {
	for cause, want := range map[error]eval.State{ErrCancelled: eval.StateCancelled, ErrLeaseLost: eval.StatePending, context.Canceled: eval.StatePending} {
		t.Run(cause.Error(), func(t *testing.T) {
			w := newWorld(t, "exec sleep 3600", nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			r := w.claim()
			r.slot = endingSlot{func() { cancel(cause) }}
			w.check(r.Run(ctx))
			o := w.view()
			if o.State != want || o.Failures != 0 {
				t.Errorf("it is %s after %d failures with %v", o.State, o.Failures, o.Fault)
			}
		})
	}
}

// endingSlot is a slot that is free, when something happens.
type endingSlot struct{ happens func() }

func (s endingSlot) Acquire(context.Context) error { s.happens(); return nil }
func (endingSlot) Release()                        {}

// Given no slot for the agent: the rollout is given back as if it had never been claimed.
func TestWithoutASlotTheClaimIsGivenBack(t *testing.T) {
	w := newWorld(t, completes, nil)
	r := w.claim()
	r.slot = noSlot{}
	w.check(r.Run(t.Context()))
	if o := w.view(); o.State != eval.StatePending || o.Failures != 0 || len(o.Segments) != 0 {
		t.Errorf("it is %s with the segments %+v", o.State, o.Segments)
	}
}

type noSlot struct{}

func (noSlot) Acquire(context.Context) error { return ErrNoSlot }
func (noSlot) Release()                      {}

// Given a rollout that has been suspended as often as it may be: it faults with the category
// suspensions, and is not tried again.
func TestSuspensionsAreLimited(t *testing.T) {
	w := newWorld(t, suspendsOnce+completes, func(req *plans.Request) {
		req.Set.Limits.Suspensions, req.Set.Retry.Max, req.Set.Retry.On = 0, 5, []string{"*"}
	})
	w.run()
	if o := w.view(); o.State != eval.StateFaulted || o.Fault.Category != fault.Suspensions || o.Attempt != 1 {
		t.Errorf("it is %s after attempt %d with %v", o.State, o.Attempt, o.Fault)
	}
}

// Invariant: clocks are kept apart. Limits count working time, and no other.
func TestLimitsCountWorkingTime(t *testing.T) {
	w := newWorld(t, completes, func(req *plans.Request) { req.Set.Limits.Timeout = time.Minute })
	r := w.claim()
	w.check(r.held.load(t.Context()))
	r.held.claim.Clocks = store.Clocks{Working: 20 * time.Second, Waiting: time.Hour, Queued: time.Hour, Evaluating: time.Hour}
	var seg agent.Segment
	// A26: the fault names the limit.
	if f := r.limitTime(&seg); seg.Timeout != 40*time.Second || f != nil || seg.TimeoutFault().Message != "the segment took longer than 40s and was ended (what was left of 1m0s, limits.timeout)" {
		t.Errorf("%v are left, fault %v, want 40s: %s", seg.Timeout, f, seg.TimeoutFault())
	}
	r.started = time.Now().Add(-50 * time.Second)
	if r.timeSpent(20*time.Second) || !r.timeSpent(0) {
		t.Error("time for which a call was held open counts as working time")
	}
	r.held.claim.Clocks.Working = time.Minute
	if f := r.limitTime(&seg); f == nil || f.Category != fault.Timeout {
		t.Errorf("with nothing left the fault is %v", f)
	}
}
