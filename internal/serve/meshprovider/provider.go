// Package meshprovider makes evalrun an agent of a mesh (MCP Mesh) that provides capabilities: it
// registers at the registry of the mesh, claims the jobs that others submit there, has each of them
// done as a run, and reports their progress to the registry.
//
// A job is one run, by an idempotency key that is made of the job's id: however often it is
// claimed, by this process or the next one, it continues the existing run. Reports are made from
// the store, so that nothing is lost when this process or the registry is killed.
//
// The package knows the wire of the registry for its executors. It knows nothing of the requests
// that evalrun serve answers.
package meshprovider

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// defaultInterval is how often the agent sends a heartbeat to the registry. The answer says how
	// many jobs are pending.
	defaultInterval = 2 * time.Second
	// goodbye is how long the last reports may take when the provider ends.
	goodbye = 5 * time.Second
	// openPage is how many jobs are read at once.
	openPage = 200
)

// Options are the dependencies of a provider.
type Options struct {
	Service *service.Service
	// Mesh is the configuration.
	Mesh service.Mesh
	// Interval is the time between two heartbeats; 0 means 2 s.
	Interval time.Duration
	// Drain, when it is closed, stops the claiming of jobs. Those in hand go on; nil is never closed.
	Drain <-chan struct{}
	// Log, if not nil, gets the errors.
	Log *slog.Logger
}

// provider is the agent.
type provider struct {
	o        Options
	registry *registry

	mu sync.Mutex
	// inHand are the jobs that are worked on, by their ids.
	inHand map[string]*job
	jobs   sync.WaitGroup
	// room receives a value when there may be room for another job.
	room chan struct{}

	// adopted says that the jobs that the registry has assigned to this agent were taken up. failing
	// says that the last turn has failed. Only Run uses them.
	adopted, failing bool
}

// Run is an agent of the mesh until its context ends.
func Run(ctx context.Context, o Options) {
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &provider{o: o, registry: newRegistry(o.Mesh, o.Service.Runner().ID()), inHand: map[string]*job{},
		room: make(chan struct{}, 1)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
		case <-p.room:
		case <-ctx.Done():
			continue
		}
		p.report(ctx, p.turn(ctx))
		timer.Reset(o.Interval)
	}
	p.jobs.Wait()
	p.leave(ctx)
}

// report logs the first of several errors, and the recovery.
func (p *provider) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !p.failing:
		p.o.Log.Warn("the registry of the mesh cannot be used; trying again", "registry", p.registry.shown, "error", err)
	case err == nil && p.failing:
		p.o.Log.Warn("the registry of the mesh can be used again", "registry", p.registry.shown)
	}
	p.failing = err != nil
}

// turn sends a heartbeat, and claims pending jobs.
func (p *provider) turn(ctx context.Context) error {
	pending, known, err := p.registry.beat(ctx)
	if err == nil && !known {
		err = p.registry.register(ctx, p.o.Mesh)
		pending = true // the next heartbeat would tell
	}
	if err != nil {
		p.adopted = false
		return err
	}
	if !p.adopted {
		if err := p.adopt(ctx); err != nil {
			return err
		}
		p.adopted = true
	}
	if !pending || p.draining() {
		return nil
	}
	for _, c := range p.o.Mesh.Capabilities {
		for p.free() && ctx.Err() == nil {
			id, err := p.registry.claim(ctx, c.Name)
			if err != nil {
				p.adopted = false // a claim whose answer is lost is a claim
				return err
			}
			if id == "" {
				break
			}
			p.take(ctx, id, "")
		}
	}
	return nil
}

// adopt takes up the jobs whose runs have not ended, and those that the registry has assigned to
// this agent: those of a process that was killed, or of a claim without an answer.
func (p *provider) adopt(ctx context.Context) error {
	runs, err := p.openRuns(ctx)
	if err != nil {
		return err
	}
	for id, runID := range runs {
		p.take(ctx, id, runID)
	}
	ids, err := p.registry.owned(ctx)
	for _, id := range ids {
		p.take(ctx, id, "")
	}
	return err
}

// openRuns returns the runs of the mesh's jobs that have not ended, by the ids of their jobs.
func (p *provider) openRuns(ctx context.Context) (map[string]string, error) {
	runs := map[string]string{}
	f := store.JobFilter{Statuses: []store.JobStatus{store.JobWorking, store.JobInputRequired}, Limit: openPage}
	for {
		page, err := p.o.Service.Jobs().ListJobs(ctx, f)
		if err != nil || len(page) == 0 {
			return runs, err
		}
		for _, j := range page {
			if id := meshJob(j); id != "" {
				runs[id] = j.ID
			}
		}
		last := page[len(page)-1]
		f.BeforeTime, f.BeforeID = last.SubmittedAt, last.ID
	}
}

func (p *provider) draining() bool {
	select {
	case <-p.o.Drain:
		return true
	default:
		return false
	}
}

// free reports whether another job may be claimed. Jobs that only wait take no slot.
func (p *provider) free() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	busy := 0
	for _, j := range p.inHand {
		if !j.idle {
			busy++
		}
	}
	return busy < p.o.Mesh.MaxJobs
}

// take works on a job. runID is its run; empty if that has to be found. A job in hand may be about
// to be put down, and is then checked once more: nobody else has this claim.
func (p *provider) take(ctx context.Context, id, runID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j := p.inHand[id]; j != nil {
		j.claimedAgain = true
		return
	}
	j := newJob(p, id, runID)
	p.inHand[id] = j
	p.jobs.Go(func() {
		for j := j; j != nil; j = p.putDown(j) {
			j.work(ctx)
		}
		p.hasRoom()
	})
}

// putDown ends the work on a job. It returns the job again if it was taken meanwhile, else nil.
func (p *provider) putDown(j *job) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.claimedAgain {
		next := newJob(p, j.id, "")
		p.inHand[j.id] = next
		return next
	}
	delete(p.inHand, j.id)
	return nil
}

func (p *provider) hasRoom() {
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// setIdle records whether a job only waits.
func (p *provider) setIdle(j *job, idle bool) {
	p.mu.Lock()
	changed := idle && !j.idle
	j.idle = idle
	p.mu.Unlock()
	if changed {
		p.hasRoom()
	}
}

// leave unregisters the agent, unless it has jobs: the next start of the agent continues them.
func (p *provider) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if ids, err := p.registry.owned(ctx); err == nil && len(ids) == 0 {
		p.registry.leave(ctx)
	}
}
