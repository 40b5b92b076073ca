// Package engine is the life of a rollout: it claims rollouts, runs their segments, suspends and resumes
// them, starts and watches what they wait for, and has them evaluated. What it decides is in the store; it keeps
// nothing that a crash could lose.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// Options are what a Runner needs.
type Options struct {
	Store store.Store
	// RunID restricts the runner to one run; empty means every run of the store.
	RunID string
	// Concurrency is how many agents run at once. With 0 no agent is started: only triggers are looked after.
	Concurrency int
	// Stay makes Run with UntilIdle stay for results that their sources will forget, until they are here.
	Stay bool
	// WorkDir is the folder in which the command runs, Executable the evalrun program, which local jobs are started with.
	WorkDir    string
	Executable string
	// Version of evalrun, which agents are told.
	Version string
	// Resolve gives the value of a ${VAR} in an agent entry or a job. Secrets are values that must not be written anywhere, by name;
	// those of resolved ${VAR}s are added to them.
	Resolve func(name string) (string, bool)
	Secrets map[string]string
	// Events, if not nil, is called with every event of the runs that the runner works on, whichever process made it, in order and
	// from one goroutine.
	Events func(store.Event)
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Lease is the store's lease; 0 means its default.
	Lease time.Duration
}

// Until says when Run returns.
type Until int

// The values of Until.
const (
	// UntilIdle returns when nothing can be done without something outside.
	UntilIdle Until = iota
	// UntilFinal returns when the run is final.
	UntilFinal
	// UntilStopped returns when it is stopped.
	UntilStopped
)

// poll is how long a lost wake-up can cost; nothing polls faster.
const poll = 5 * time.Second

// finishing is how many rollouts may be committed and evaluated while the next agents run already.
const finishing = 32

// watching is how many sources are asked at once.
const watching = 8

// Runner works on the rollouts of a store. Several may, in one process or in many.
type Runner struct {
	o     Options
	runs  runCache
	event *eventPump
	// syncer makes the files of segments durable.
	syncer durable.Syncer

	// stop is closed when nothing new is to be started.
	stop     chan struct{}
	stopOnce sync.Once

	// kick wakes the dispatcher after something in this process changed.
	kick   chan struct{}
	work   sync.WaitGroup
	places *places

	mu sync.Mutex
	// active counts the rollouts whose agent runs or is about to, inFlight them and those that are being finished; asking the sources being
	// asked.
	active, inFlight, asking int
	// held are the rollouts that this process works on, with what ends their agent.
	held map[string]context.CancelCauseFunc
	// triggersDue says that triggers should be claimed; nextDue is the earliest known time for that.
	triggersDue bool
	nextDue     time.Time
	// asked are the triggers that were claimed since a rollout was begun last, lapped says that one of them came a second time: then all
	// that were due have had their turn. Only kept by a runner that ends when it is idle.
	asked   map[string]bool
	lapped  bool
	failure error
	// postponed are the rollouts that this process has put back because it cannot run them.
	postponed map[string]bool
	// internalPause is the first pause after evalrun itself has failed with a rollout.
	internalPause time.Duration
	// staying says that it was told that we stay.
	staying bool
	// models is nil until an agent needs it.
	models *modelproxy.Proxy
	// gateway is nil until an agent's servers need it, http is for what is asked of MCP servers while nobody runs.
	gateway *gateway.Gateway
	http    *http.Client
}

// New makes a runner. It does nothing until Run is called.
func New(o Options) *Runner {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Lease == 0 {
		o.Lease = store.DefaultLease
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{o: o, stop: make(chan struct{}), kick: make(chan struct{}, 1), places: newPlaces(o.Concurrency), held: map[string]context.CancelCauseFunc{}, triggersDue: true,
		postponed: map[string]bool{}, internalPause: firstRetry}
	r.runs.load = r.loadRun
	r.syncer.Dir = o.Store.Dir()
	r.event = newEventPump(r)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.IdleConnTimeout = 16, 30*time.Second
	r.http = &http.Client{Transport: transport}
	return r
}

// Stop makes Run start nothing new, let finish what runs, and return.
func (r *Runner) Stop() { r.stopOnce.Do(func() { close(r.stop) }) }

// Run works until it is done, stopped, or ctx is done: then the running agents are ended and their segments will be repeated. The
// error is only for what is wrong with evalrun or its store.
func (r *Runner) Run(ctx context.Context, until Until) error {
	if err := r.event.start(ctx); err != nil {
		return err
	}
	if until == UntilIdle {
		r.asked = map[string]bool{}
	}
	leases := r.keepLeases(ctx)
	err := r.dispatch(ctx, until)
	r.work.Wait()
	leases.stop()
	r.mu.Lock()
	failure := r.failure
	r.mu.Unlock()
	stopped := r.event.stop()
	r.runs.close()
	r.http.CloseIdleConnections()
	r.mu.Lock()
	if r.gateway != nil {
		stopped = errors.Join(stopped, r.gateway.Close())
	}
	if r.models != nil {
		stopped = errors.Join(stopped, r.models.Close())
	}
	r.mu.Unlock()
	err = errors.Join(err, failure)
	if errors.Is(err, store.ErrMoved) {
		return err // everything else follows from that
	}
	return errors.Join(err, stopped)
}

// CheckNow makes every source be asked at once, whenever it would be asked otherwise.
func (r *Runner) CheckNow(ctx context.Context) error { return r.o.Store.CheckNow(ctx, r.o.RunID) }

// dispatch hands out work until nothing is left.
func (r *Runner) dispatch(ctx context.Context, until Until) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	ask, endAsking := context.WithCancel(ctx)
	defer endAsking() // a source that does not answer keeps nobody from stopping
	for {
		if r.stopped(ctx) {
			return nil
		}
		full, err := r.claimRollouts(ctx)
		if err == nil {
			err = r.claimTriggers(ask)
		}
		wait, done := poll, false
		if err == nil && !full {
			wait, done, err = r.outlook(ctx, until)
		}
		if err != nil || done {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		timer.Reset(wait)
		select {
		case <-r.kick:
		case up := <-r.o.Store.Wake():
			if err := r.woken(ctx, up); err != nil {
				return err
			}
		case <-timer.C:
			r.lookAtTriggers()
			r.event.kickAll() // a wake-up may have been lost
		case <-r.stop:
		case <-ctx.Done():
		}
	}
}

func (r *Runner) stopped(ctx context.Context) bool {
	select {
	case <-r.stop:
		return true
	case <-ctx.Done():
		return true
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure != nil
}

// outlook says how long to wait for the next thing to do, or that there will be none.
func (r *Runner) outlook(ctx context.Context, until Until) (wait time.Duration, done bool, err error) {
	r.mu.Lock()
	busy, lapped, postponed := r.inFlight > 0 || r.asking > 0, r.lapped, len(r.postponed)
	wait = poll
	switch {
	case r.asking >= watching || r.lapped && r.inFlight == 0: // whoever is done with one wakes us
	case r.triggersDue:
		wait = 0
	case !r.nextDue.IsZero():
		wait = r.nextDue.Sub(r.o.Now())
	}
	r.mu.Unlock()
	if busy {
		return clamp(wait), false, nil
	}
	b, err := r.o.Store.Backlog(ctx, r.o.RunID)
	if err != nil {
		return 0, false, err
	}
	if until == UntilFinal && b.Due == 0 { // the last to end may leave jobs to be cancelled
		run, err := r.o.Store.Run(ctx, r.o.RunID)
		if err != nil || run.Final() {
			return 0, true, err
		}
	}
	if lapped {
		b.Due = 0 // what is due again was asked already
	}
	b.Delayed = max(0, b.Delayed-postponed) // not for this process
	if until == UntilIdle && (b.Idle() || r.o.Concurrency == 0 && b.Due == 0) {
		if stay, err := r.expiring(ctx); err != nil || !stay {
			return 0, true, err
		}
	}
	if b.Due > 0 {
		r.lookAtTriggers()
	}
	r.mu.Lock()
	clear(r.asked)
	r.lapped = false
	r.nextDue = b.NextDue
	r.mu.Unlock()
	if b.Runnable > 0 && r.o.Concurrency > 0 || b.Due > 0 {
		return 0, false, nil
	}
	if b.NextDue.IsZero() {
		return poll, false, nil
	}
	return clamp(b.NextDue.Sub(r.o.Now())), false, nil
}

// expiring reports whether there is something to stay for: a result that its source will forget.
func (r *Runner) expiring(ctx context.Context) (stay bool, err error) {
	if !r.o.Stay {
		return false, nil
	}
	err = r.o.Store.Triggers(ctx, r.o.RunID, false, func(t store.Trigger) error {
		var spec wait.Spec
		if json.Unmarshal(t.Spec, &spec) != nil {
			return nil // whoever claims it finds that out
		}
		if spec.ExpiresAt != nil && !stay && r.o.Now().Sub(*spec.ExpiresAt) < 2*afterExpiry {
			stay = true
			if !r.staying {
				r.staying = true
				r.o.Logger.Warn("waiting for a result that its source will forget; --detach leaves it to an executor", "trigger", t.ID, "until", spec.ExpiresAt.Local().Format(time.DateTime))
			}
		}
		return nil
	})
	return stay, err
}

func clamp(d time.Duration) time.Duration { return min(max(d, time.Millisecond), poll) }

// claimRollouts starts as many rollouts as there are free places; full says that there is none left.
func (r *Runner) claimRollouts(ctx context.Context) (full bool, err error) {
	r.mu.Lock()
	limit := min(r.places.room(r.active), r.o.Concurrency*(1+aheadPerPlace)+finishing-r.inFlight)
	r.mu.Unlock()
	if limit <= 0 {
		return r.o.Concurrency > 0, nil
	}
	claims, err := r.o.Store.Claim(ctx, r.o.RunID, limit)
	if err != nil {
		return false, err
	}
	leftover := r.endLeftovers(claims)
	for _, c := range claims {
		if c.TakenOver {
			r.begin(ctx, c, leftover)
		} else {
			r.begin(ctx, c, nil)
		}
	}
	return len(claims) == limit, nil
}

// begin starts the goroutine of one claimed rollout. leftover says that processes which an earlier holder left could not be ended.
func (r *Runner) begin(ctx context.Context, c store.Claim, leftover error) {
	agentCtx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.active++
	r.inFlight++
	r.held[c.RolloutID] = cancel
	delete(r.postponed, c.RolloutID)
	clear(r.asked)
	r.lapped = false
	r.mu.Unlock()
	r.event.watch(c.RunID)
	r.event.kick(c.RunID)
	r.work.Add(1)
	go func() {
		defer r.work.Done()
		w := &worker{Runner: r, claim: c, state: c.State, leftover: leftover, claimed: time.Now()}
		err := w.settle(agentCtx, w.attempt(agentCtx))
		cancel(nil)
		r.mu.Lock()
		r.inFlight--
		delete(r.held, c.RolloutID)
		if err != nil && r.failure == nil {
			r.failure = fmt.Errorf("rollout %s (%s): %w", c.RolloutID, c.EvaluationName, err)
		}
		r.mu.Unlock()
		r.changed(c.RunID)
	}()
}

// changed wakes the dispatcher, and the event pump for a run.
func (r *Runner) changed(runID string) {
	r.wakeUp()
	r.event.kick(runID)
}

// wakeUp wakes the dispatcher.
func (r *Runner) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// woken reacts to another process's commit.
func (r *Runner) woken(ctx context.Context, up store.WakeUp) error {
	for _, id := range up.Jobs {
		if err := r.o.Store.CheckTrigger(ctx, id); err != nil {
			return err
		}
	}
	r.lookAtTriggers()
	if up.Unnamed {
		r.event.kickAll()
	} else {
		r.event.kick(up.Runs...)
	}
	r.mu.Lock()
	holds := len(r.held) > 0
	r.mu.Unlock()
	if !holds {
		return nil
	}
	return r.renew(ctx) // perhaps something was cancelled
}

func (r *Runner) lookAtTriggers() {
	r.mu.Lock()
	r.triggersDue = true
	r.mu.Unlock()
}
