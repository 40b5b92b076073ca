package worker

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// The limits of a worker's life.
const (
	// maxJobs is how many jobs a worker does before it is replaced.
	maxJobs = 500
	// maxGrowthKb is how much memory it may need beyond what it had when it greeted.
	maxGrowthKb = 1 << 20
	// maxDirty is after how many jobs in a row that have left something behind it is replaced.
	maxDirty = 3
	// maxDeaths is after how many deaths in a row, without a job that was done, workers are not kept any
	// more.
	maxDeaths = 3
	// maxIdle is how long a worker is kept that nobody needs: rollouts that wait need no process.
	maxIdle = time.Minute
)

// Pool has the workers of one program.
type Pool struct {
	// fresh says that each job has a worker of its own.
	fresh bool
	idle  time.Duration

	mu   sync.Mutex
	free []*worker
	// alive counts the workers that are there or are being started. changed is closed and replaced when
	// a worker has become free or has gone.
	alive   int
	changed chan struct{}
	// loaded is how long the last start took, 0 if there was none, and ready is when it was done.
	loaded time.Duration
	ready  time.Time
	deaths int
	// refused is what a worker has said in place of a greeting. It would say so again.
	refused *fault.Fault
	leaving sync.WaitGroup
}

// New makes a pool. If fresh is set, each job gets a worker of its own, which ends with the job.
func New(fresh bool) *Pool {
	return &Pool{fresh: fresh, idle: maxIdle, changed: make(chan struct{})}
}

// Do does a job. When ctx is done, the worker of the job is ended and the answer is empty. The error
// is one of evalrun itself.
func (p *Pool) Do(ctx context.Context, j Job) (Answer, error) {
	for {
		w, bad, err := p.acquire(ctx, j)
		if w == nil || bad != nil || err != nil {
			return Answer{Fault: bad}, err
		}
		kept := w.jobs > 0
		answer, begun := w.do(ctx, jobID(w.jobs+1), j)
		last, err := p.release(w, answer)
		if last {
			_, _ = io.WriteString(j.Stderr, givenUp)
		}
		if begun || !kept || err != nil || ctx.Err() != nil {
			return answer, err
		}
		// It was gone when it got the job, or before: nothing has been done.
	}
}

func jobID(n int) string { return strconv.Itoa(n) }

// Close ends all workers. It is called when no job is being done and none will be.
func (p *Pool) Close() error {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	errs := make([]error, len(free))
	var all sync.WaitGroup
	for i, w := range free {
		w.idle.Stop()
		all.Go(func() { errs[i] = w.leave() })
	}
	all.Wait()
	p.leaving.Wait()
	return errors.Join(errs...)
}

// acquire returns a worker for a job. It is nil if ctx is done. A further worker is started when a
// job has waited for as long as a start takes: on few cores, to start several at once takes longer
// than to wait.
func (p *Pool) acquire(ctx context.Context, j Job) (*worker, *fault.Fault, error) {
	began := time.Now()
	for {
		p.mu.Lock()
		if p.refused != nil {
			defer p.mu.Unlock()
			return nil, clone(p.refused), nil
		}
		w, stale := p.take()
		since := began
		if since.Before(p.ready) {
			since = p.ready
		}
		left := p.loaded - time.Since(since)
		start := w == nil && (p.fresh || p.deaths >= maxDeaths || p.alive == 0 || p.loaded > 0 && left <= 0)
		if start {
			p.alive++
		}
		changed, known := p.changed, p.loaded > 0
		p.mu.Unlock()
		for _, old := range stale {
			_ = old.leave() // it has died, or broken the protocol, while it had no job
		}
		switch {
		case w != nil:
			return w, nil, nil
		case start:
			return p.start(ctx, j)
		}
		var late <-chan time.Time
		if known {
			late = time.After(left)
		}
		select {
		case <-changed:
		case <-late:
		case <-ctx.Done():
			return nil, nil, nil
		}
	}
}

// take takes a worker that is free. Those that have died or have said something unasked are stale.
func (p *Pool) take() (w *worker, stale []*worker) {
	for len(p.free) > 0 {
		w = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		w.idle.Stop()
		select {
		case <-w.gone:
		case <-w.lines:
		default:
			return w, stale
		}
		stale = append(stale, w)
		p.alive--
	}
	return nil, stale
}

// start starts a worker, which is counted as alive already.
func (p *Pool) start(ctx context.Context, j Job) (w *worker, bad *fault.Fault, err error) {
	defer func() {
		if w == nil {
			p.mu.Lock()
			p.alive--
			p.signal()
			p.mu.Unlock()
		}
	}()
	command, bad := j.Start(ctx)
	if bad != nil || ctx.Err() != nil {
		return nil, bad, nil
	}
	began := time.Now()
	started, err := launch(command, j.Stderr)
	if err != nil {
		return nil, nil, &StartError{command, err}
	}
	bad = started.greet(ctx, j.who())
	if e := started.greeted.Error; bad == nil && e != nil {
		bad = fault.New(fault.Start, e.Message)
		p.mu.Lock()
		p.refused = clone(bad)
		p.mu.Unlock()
	}
	if bad != nil || ctx.Err() != nil {
		err = started.leave()
		started.finish()
		return nil, bad, err
	}
	started.stderr.to(nil)
	p.mu.Lock()
	p.ready = time.Now()
	p.loaded = p.ready.Sub(began)
	p.signal()
	p.mu.Unlock()
	return started, nil, nil
}

// givenUp is said in the stderr of the job after which workers are not kept any more.
const givenUp = "evalrun: three workers in a row have ended without an answer; from now on each segment has a process of its own\n"

// release takes a worker back after a job. It reports whether workers are not kept from now on.
func (p *Pool) release(w *worker, a Answer) (last bool, err error) {
	grown := w.greeted.RSSKb > 0 && a.Stats.RSSKb > w.greeted.RSSKb+maxGrowthKb
	if w.dirty++; len(a.Stats.Dirty) == 0 {
		w.dirty = 0
	}
	if w.jobs >= maxJobs || grown || w.dirty >= maxDirty || slices.Contains(a.Stats.Dirty, "loop-closed") {
		w.spoilt = true
	}
	p.mu.Lock()
	switch {
	case p.fresh || p.deaths == maxDeaths:
	case a.Output != nil || a.Error != nil:
		p.deaths = 0
	default:
		p.deaths++
		last = p.deaths == maxDeaths
	}
	keep := !w.spoilt && !p.fresh && p.deaths == 0
	if keep {
		w.idle = time.AfterFunc(p.idle, func() { p.expire(w) })
		p.free = append(p.free, w)
	} else {
		p.alive--
	}
	p.signal()
	p.mu.Unlock()
	if !keep {
		err = w.leave()
	}
	return last, err
}

// signal tells those that wait for a worker that something has changed.
func (p *Pool) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// expire ends a worker that nobody has needed for long.
func (p *Pool) expire(w *worker) {
	p.mu.Lock()
	i := slices.Index(p.free, w)
	if i >= 0 {
		p.free = slices.Delete(p.free, i, i+1)
		p.alive--
		p.signal()
		p.leaving.Add(1)
	}
	p.mu.Unlock()
	if i >= 0 {
		defer p.leaving.Done()
		_ = w.leave() // it has nothing that anybody would miss
	}
}

func clone(f *fault.Fault) *fault.Fault {
	copied := *f
	return &copied
}
