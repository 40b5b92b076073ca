// Package engine works on the rollouts of a store: it claims them, keeps their leases, gives their
// agents slots, starts and checks the jobs that they wait for, and writes the log of events.
// Package rollout does the work between the claim of a rollout and its release. The decisions of
// the engine are in the store; it keeps nothing that a crash could lose.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/grace"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait/sources"
)

// Store is the part of the store that a Runner needs.
type Store interface {
	rollout.Store
	store.Mailbox
	store.Batches
	store.Questions
	store.Changes
	store.Limits
	store.Workers
	// Wake returns a channel that receives after another process committed something that may concern
	// a dispatcher. Wake-ups are folded together and may be lost.
	Wake() <-chan store.WakeUp
}

// Options are the options of a Runner.
type Options struct {
	Store Store
	// RunID restricts the runner to one run; empty means every run of the store.
	RunID string
	// Concurrency is how many agents run at once. With 0 no agent is started, and only triggers are
	// handled.
	Concurrency int
	// Stay makes Run with UntilIdle stay for results that their sources will forget, until they are
	// here.
	Stay bool
	// WorkDir is the folder in which the command runs. Executable is the evalrun program, which
	// starts local jobs.
	WorkDir    string
	Executable string
	// Version is evalrun's version, which agents are told.
	Version string
	// Resolve returns the value of a ${VAR} in an agent entry or a job. Secrets are values that
	// must not be written anywhere, by name; those of resolved ${VAR}s are added to them.
	Resolve func(name string) (string, bool)
	Secrets map[string]string
	// WebhookURL returns the URL to which the job of a trigger may post its answer. It is nil if no
	// server can be reached.
	WebhookURL func(triggerID string) (string, error)
	// Events, if not nil, is called with every event of the runs that the runner works on,
	// whichever process made it, in order and from one goroutine.
	Events func(store.Event)
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Lease is the store's lease; 0 means its default.
	Lease time.Duration
	// StopGrace is how long a stop waits for the answer to a request that starts a job, cancels one,
	// or answers its question; 0 means [grace.Stop].
	StopGrace time.Duration
}

// Until says when Run returns.
type Until int

// The values of Until.
const (
	// UntilIdle returns when nothing can be done without something outside.
	UntilIdle Until = iota
	// UntilDone returns when nothing is due and nothing can be claimed, whatever others are working on.
	UntilDone
	// UntilFinal returns when the run is final.
	UntilFinal
	// UntilAsked returns when the run is final, or only people are waited for.
	UntilAsked
	// UntilStopped returns when it is stopped.
	UntilStopped
)

// Runner works on the rollouts of a store. Several runners may share a store, in one process or in
// many.
type Runner struct {
	o        *Options
	host     *rollout.Host
	runs     *runCache
	guard    *guard
	events   *eventLog
	leases   *leases
	slots    *slots
	triggers *triggerLoop

	// stop is closed when nothing new is to be started.
	stop     chan struct{}
	stopOnce sync.Once
	// lacking receives when there is something new in lacks.
	lacking chan struct{}
	// kick wakes the dispatcher after something in this process changed.
	kick chan struct{}
	work sync.WaitGroup

	mu sync.Mutex
	// active counts the rollouts whose agent runs or is about to run. inFlight counts these and the
	// rollouts that are being finished.
	active, inFlight int
	// lacks are the last reasons for which this process has put rollouts back, the newest last.
	lacks []string
	// postponed holds the rollouts that this process has put back because it cannot run them.
	postponed map[string]bool
	// changedRuns holds the runs that this process has changed without this runner; see Tell.
	changedRuns map[string]bool
	// ended holds the triggers of local jobs that have said that they are done.
	ended []string
	// staying says that the reason for staying has been logged.
	staying bool
	// saidLimited and saidUnfit say that it has been said what is held back. The loop alone uses them.
	saidLimited, saidUnfit bool
	// failure is the error that ends Run.
	failure error
}

// New makes a runner. It does nothing until Run is called.
func New(options Options) *Runner {
	o := &options
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Lease == 0 {
		o.Lease = store.DefaultLease
	}
	if o.StopGrace == 0 {
		o.StopGrace = grace.Stop
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, stop: make(chan struct{}), kick: make(chan struct{}, 1), lacking: make(chan struct{}, 1), slots: newSlots(o.Concurrency),
		postponed: map[string]bool{}, changedRuns: map[string]bool{}}
	r.runs = newRunCache(o)
	r.guard = &guard{o: o, runs: r.runs, stop: r.stop, pause: firstRetry}
	r.events = newEventLog(o, r.runs, r.failFast)
	r.triggers = newTriggerLoop(r)
	r.leases = newLeases(o, r.triggers.addClaims)
	r.host = &rollout.Host{
		Store: o.Store, LoadRun: r.runs.get, JobsChanged: r.triggers.markDue, Resolve: o.Resolve, AnyRun: o.RunID == "",
		Executable: o.Executable, Lease: o.Lease, Logger: o.Logger, Syncer: &durable.Syncer{Dir: o.Store.Dir()},
	}
	return r
}

// maxEnded bounds the local jobs that have said that they are done. Those of which that is forgotten
// are found when they are due.
const maxEnded = 1000

// jobEnded reports that the local job of a trigger has said that it is done.
func (r *Runner) jobEnded(triggerID string) {
	r.mu.Lock()
	if len(r.ended) < maxEnded {
		r.ended = append(r.ended, triggerID)
	}
	r.mu.Unlock()
	r.wakeUp()
}

// Stop makes Run start nothing new, finish the work in progress, and return.
func (r *Runner) Stop() { r.stopOnce.Do(func() { close(r.stop) }) }

// Run works until it has finished, is stopped, or ctx is done. When ctx is done, the running agents
// are ended and their segments will be repeated. An error means that evalrun or its store has
// failed.
func (r *Runner) Run(ctx context.Context, until Until) error {
	if err := r.events.start(ctx); err != nil {
		if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
			return nil // ctx ended before Run began
		}
		return err
	}
	if until == UntilIdle || until == UntilDone {
		r.triggers.countRounds()
	}
	stopLeases := r.leases.keep(ctx)
	leave := func() {}
	if r.o.RunID == "" && until == UntilStopped {
		leave = r.announce(ctx)
	}
	stopListening, err := sources.Listen(r.o.Store.Dir(), r.jobEnded)
	if err == nil {
		err = r.dispatch(ctx, until)
	}
	if ctx.Err() != nil {
		err = nil // errors of the store after the context has ended do not count
	}
	r.work.Wait()
	leave()
	stopLeases()
	r.mu.Lock()
	failure := r.failure
	r.mu.Unlock()
	stopped := errors.Join(stopListening(), r.events.stop(), r.runs.close())
	err = errors.Join(err, failure)
	if errors.Is(err, store.ErrMoved) {
		return err // all other errors follow from this one
	}
	return errors.Join(err, stopped)
}

// Tell reports that this process has changed a run without this runner: it has made the run,
// cancelled it, or delivered something. The store reports the changes of other processes.
func (r *Runner) Tell(runID string) {
	if r.o.RunID != "" && r.o.RunID != runID {
		return
	}
	r.mu.Lock()
	r.changedRuns[runID] = true
	r.mu.Unlock()
	r.events.watch(runID)
	r.wakeUp()
}

// takeChangedRuns returns the runs that Tell has named since the last call.
func (r *Runner) takeChangedRuns() (runs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.changedRuns {
		runs = append(runs, id)
	}
	clear(r.changedRuns)
	return runs
}

// CheckNow makes the runner ask every source at once, whatever its schedule.
func (r *Runner) CheckNow(ctx context.Context) error { return r.o.Store.CheckNow(ctx, r.o.RunID) }

// fail makes Run return an error once the work in progress has ended.
func (r *Runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// changed wakes the dispatcher, and tells the event log that a run has changed.
func (r *Runner) changed(runID string) {
	r.wakeUp()
	r.events.kick(runID)
}

// wakeUp wakes the dispatcher.
func (r *Runner) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
