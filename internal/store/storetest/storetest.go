// Package storetest says what a store must do, as a suite of specifications that every
// implementation has to pass. It uses a store only through its interface, and a clock of its own;
// it knows nothing of any implementation.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Store is a store as the suite uses it: everything that the program can do with one.
type Store interface {
	store.Runs
	store.Reader
	store.Listing
	store.Queue
	store.Scoring
	store.Batches
	store.Ledger
	store.Mailbox
	store.Questions
	store.MCPTasks
	store.AccessTokens
	store.Jobs
	store.Outbox
	store.Rescorings
	store.Standings
	store.Limits
	store.Workers
	store.Blocks
	store.Changes
	// Holder is the id under which it claims.
	Holder() string
	// Close closes it. Claims that are still held stay until their lease is void.
	Close() error
}

// Opener opens a store. Two that are opened for one dir are one store, seen by two processes: each
// claims for itself. The suite closes what it opens. An opener must honour Now, Lease and Machine,
// and Process if the store has [store.Processes].
type Opener func(t testing.TB, dir string, o store.Options) Store

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, group := range []struct {
		name  string
		specs func(*suite)
	}{
		{"runs", runSpecs}, {"removal", removeSpecs}, {"claims", claimSpecs}, {"leases", leaseSpecs},
		{"dead processes", deadProcessSpecs}, {"fencing", fenceSpecs}, {"states", stateSpecs},
		{"suspensions", suspensionSpecs}, {"several triggers", severalSpecs}, {"siblings", siblingSpecs},
		{"mailbox", mailboxSpecs}, {"parked", parkedSpecs}, {"questions", questionSpecs}, {"faults", faultSpecs},
		{"deadlines", deadlineSpecs}, {"starts", startSpecs}, {"machines", machineSpecs}, {"given up", givenUpSpecs},
		{"cancel", cancelSpecs}, {"retries", retrySpecs}, {"evaluating", evaluateSpecs}, {"scoring", scoringSpecs},
		{"batches", batchSpecs}, {"clocks", clockSpecs}, {"events", eventSpecs}, {"changes", changeSpecs},
		{"calls", callSpecs}, {"mcp tasks", mcpTaskSpecs}, {"mcp sessions", mcpSessionSpecs},
		{"access tokens", accessTokenSpecs}, {"jobs", jobSpecs}, {"job events", jobEventSpecs}, {"job ends", jobEndSpecs},
		{"notifications", notificationSpecs}, {"targets", targetSpecs}, {"rescorings", rescoringSpecs}, {"views", viewSpecs},
		{"listing", listingSpecs}, {"backlog", backlogSpecs}, {"standings", standingSpecs}, {"heads", headSpecs},
		{"limits", limitSpecs}, {"tags", tagSpecs}, {"blocks", blockSpecs}, {"histories", historySpecs},
	} {
		t.Run(group.name, func(t *testing.T) { group.specs(&suite{t: t, open: open}) })
	}
}

// RunBlocks runs the part of the suite that is about blocks of files, for a store that has them elsewhere.
func RunBlocks(t *testing.T, open Opener) { blockSpecs(&suite{t: t, open: open}) }

type suite struct {
	t     *testing.T
	open  Opener
	specs int
}

// spec is one specification: its name is the sentence, its body given, when and then.
func (s *suite) spec(name string, body func(w *world)) {
	s.specs++
	if testenv.Short() && s.specs%3 != 1 { // every third: under the race detector SQLite in Go takes twenty times as long
		return
	}
	s.t.Run(name, func(t *testing.T) {
		t.Parallel()
		body(newWorld(t, s.open))
	})
}

// lease is that of every store of the suite.
const lease = 30 * time.Second

// world is what a spec plays in: a store that is opened once as a, and a clock. It has a method for
// each sentence of a spec, hence so many.
type world struct {
	testing.TB
	*clock
	ctx  context.Context
	dir  string
	open Opener
	// a is a store; others of the same dir are made with another.
	a Store
}

func newWorld(t testing.TB, open Opener) *world {
	w := &world{TB: t, clock: &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}, ctx: context.Background(),
		dir: t.TempDir(), open: open}
	w.a = w.another()
	return w
}

// another opens the store a second time, as another process would. By default that is a living
// process on this machine.
func (w *world) another(change ...func(*store.Options)) Store {
	w.Helper()
	o := store.Options{Now: w.Now, Lease: lease}
	for _, f := range change {
		f(&o)
	}
	s := w.open(w.TB, w.dir, o)
	w.Cleanup(func() { w.must(s.Close()) })
	return s
}

// as opens the store as a process. It skips the rest of the spec if the processes of the store do
// not see each other.
func (w *world) as(p store.Process) Store {
	w.Helper()
	if !seesProcesses(w.a) {
		w.Skip("the processes of this store do not see each other")
	}
	return w.another(func(o *store.Options) { o.Process = &p })
}

func seesProcesses(s Store) bool {
	_, ok := s.(store.Processes)
	return ok
}

// clock is a clock that goes only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now is the clock's time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// deadProcess is a process of this machine that has ended.
var deadProcess = sync.OnceValue(func() store.Process {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		panic(err)
	}
	p := store.ThisProcess()
	p.PID, p.StartTime = cmd.Process.Pid, "1"
	return p
})

func (w *world) must(err error) {
	if err != nil {
		w.Helper()
		w.Fatal(err)
	}
}

func equal[T any](w *world, what string, got, want T) {
	if diff := cmp.Diff(want, got); diff != "" {
		w.Helper()
		w.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func (w *world) refused(what string, err, as error) {
	if !errors.Is(err, as) {
		w.Helper()
		w.Fatalf("%s: got the error %v, want %v", what, err, as)
	}
}

// plan makes a run of n rollouts of one agent; change may alter the plan.
func plan(n int, change ...func(*store.Plan)) store.Plan {
	p := store.Plan{
		RunID: store.NewRunID(), Name: "Run", EvaluationSetID: "set", EvaluationSetName: "Set",
		Data: json.RawMessage(`{"x":1}`)}
	for i := range n {
		id := fmt.Sprintf("e%d", i)
		p.Evaluations = append(p.Evaluations, store.Evaluation{ID: id, Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
		p.Rollouts = append(p.Rollouts, store.PlannedRollout{
			ID: store.RolloutID(p.RunID, id, "agent", 1), Evaluation: i, EvaluationName: "E" + id, Agent: "agent", Epoch: 1})
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func needsAll(p *store.Plan) {
	for i := range p.Rollouts {
		p.Rollouts[i].All = true
	}
}

func acceptsFaults(p *store.Plan) {
	for i := range p.Rollouts {
		p.Rollouts[i].AcceptsFaults = true
	}
}

// create stores a plan of n rollouts and returns the run's id and those of the rollouts.
func (w *world) create(n int, change ...func(*store.Plan)) (runID string, rollouts []string) {
	w.Helper()
	p := plan(n, change...)
	created, err := w.a.CreateRun(w.ctx, p)
	w.must(err)
	equal(w, "created", created, true)
	for _, r := range p.Rollouts {
		rollouts = append(rollouts, r.ID)
	}
	return p.RunID, rollouts
}

// claim claims everything that can be claimed, which must be one rollout.
func (w *world) claim(s Store) store.Claim {
	w.Helper()
	claims, err := s.Claim(w.ctx, "", 10)
	w.must(err)
	if len(claims) != 1 {
		w.Fatalf("got %d claims, want 1: %+v", len(claims), claims)
	}
	return claims[0]
}

// renew renews claims of rollouts, triggers and batches.
func (w *world) renew(s Store, claims ...any) (held, cancelled []string) {
	w.Helper()
	var t store.Tokens
	for _, c := range claims {
		switch c := c.(type) {
		case store.Claim:
			t.Rollouts = append(t.Rollouts, c.Token)
		case []store.Claim:
			for _, c := range c {
				t.Rollouts = append(t.Rollouts, c.Token)
			}
		case store.TriggerClaim:
			t.Triggers = append(t.Triggers, c.TriggerToken)
		case store.BatchClaim:
			t.Batches = append(t.Batches, c.BatchToken)
		}
	}
	held, cancelled, err := s.Renew(w.ctx, t)
	w.must(err)
	return held, cancelled
}

func (w *world) claimsNothing(s Store) {
	w.Helper()
	claims, err := s.Claim(w.ctx, "", 10)
	w.must(err)
	if len(claims) != 0 {
		w.Fatalf("got %d claims, want none: %+v", len(claims), claims)
	}
}

func (w *world) commit(s Store, c store.Claim, end store.SegmentEnd) store.Committed {
	w.Helper()
	done, err := s.CommitSegment(w.ctx, c.Token, end)
	w.must(err)
	return done
}

func (w *world) suspend(s Store, c store.Claim, triggers ...store.NewTrigger) store.Committed {
	w.Helper()
	return w.commit(s, c, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: triggers})
}

var completed = store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"answer":42}`)}

// suspended makes a run of one rollout that waits for the given triggers.
func (w *world) suspended(triggers []store.NewTrigger, change ...func(*store.Plan)) (runID, rolloutID string) {
	w.Helper()
	runID, rollouts := w.create(1, change...)
	claims, err := w.a.Claim(w.ctx, runID, 1)
	w.must(err)
	w.suspend(w.a, claims[0], triggers...)
	return runID, rollouts[0]
}

// external is something that waits for a delivery and cannot be asked; its item key is "key-" and
// the interrupt's id.
func external(interruptID string) store.NewTrigger {
	return store.NewTrigger{
		InterruptID: interruptID, Type: "TASK", Name: "TASK", Source: "inbox", ItemKey: "key-" + interruptID,
		Spec: json.RawMessage(`{}`)}
}

// polled is a job that goes on already, at a source that can be asked.
func polled(interruptID string, next time.Time) store.NewTrigger {
	n := external(interruptID)
	n.Type, n.Name, n.Source, n.Checked, n.NextCheck = "JOB", "JOB", "http", true, next
	return n
}

// startable is a job that has to be started.
func startable(interruptID string) store.NewTrigger {
	n := polled(interruptID, time.Time{})
	n.ItemKey, n.KeyPrefix, n.Start = "", "job-", true
	return n
}

func list(n ...store.NewTrigger) []store.NewTrigger { return n }

func payload(triggerID, text string) store.Delivery {
	return store.Delivery{
		TriggerID: triggerID, Status: store.StatusSuccessful, Payload: json.RawMessage(text), By: "deliver"}
}

func (w *world) deliver(s Store, d store.Delivery) store.Disposition {
	w.Helper()
	r, err := s.Deliver(w.ctx, d)
	w.must(err)
	return r.Disposition
}

func (w *world) claimTrigger(s Store) store.TriggerClaim {
	w.Helper()
	claims, err := s.ClaimTriggers(w.ctx, "", 10)
	w.must(err)
	if len(claims) != 1 {
		w.Fatalf("got %d triggers, want 1: %+v", len(claims), claims)
	}
	return claims[0]
}

func (w *world) noTriggerDue(s Store) {
	w.Helper()
	claims, err := s.ClaimTriggers(w.ctx, "", 10)
	w.must(err)
	if len(claims) != 0 {
		w.Fatalf("got %d triggers, want none: %+v", len(claims), claims)
	}
}

// run reads a run.
func (w *world) run(id string) store.Run {
	w.Helper()
	r, err := w.a.Run(w.ctx, id)
	w.must(err)
	return r
}

// view is a rollout as its run's view has it, among the others and by itself.
func (w *world) view(runID, rolloutID string) (out store.RolloutView) {
	w.Helper()
	w.must(w.a.Snapshot(w.ctx, runID, func(v store.View) error {
		one, err := v.Rollout(rolloutID)
		w.must(err)
		defer func() { equal(w, "the same rollout by itself", one, out) }()
		_, err = v.Rollout("none")
		w.refused("a rollout that is not there", err, store.ErrNotFound)
		return v.Rollouts(func(o store.RolloutView) error {
			if o.ID == rolloutID {
				out = o
			}
			return nil
		})
	}))
	if out.ID == "" {
		w.Fatalf("rollout %s is not in run %s", rolloutID, runID)
	}
	return out
}

func (w *world) trigger(id string) store.Trigger {
	w.Helper()
	g, err := w.a.Trigger(w.ctx, id)
	w.must(err)
	return g
}

func (w *world) events(runID string) []store.Event {
	w.Helper()
	events, err := w.a.Events(w.ctx, runID, 0, 1_000_000)
	w.must(err)
	return events
}

func (w *world) cancel(id string) int {
	w.Helper()
	n, err := w.a.Cancel(w.ctx, id)
	w.must(err)
	return n
}

// payloads are the deliveries of a claim by interrupt.
func payloads(c store.Claim) map[string]string {
	out := map[string]string{}
	for _, d := range c.Deliveries {
		out[d.InterruptID] = string(d.Status) + " " + string(d.Payload)
	}
	return out
}

func states(triggers []store.Trigger) map[string]store.TriggerState {
	out := map[string]store.TriggerState{}
	for _, g := range triggers {
		out[fmt.Sprintf("%s/%d/%d", g.InterruptID, g.Occurrence, g.Sibling)] = g.State
	}
	return out
}

func ptr[T any](v T) *T { return &v }
