package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// settleTime is how long the pump waits after a change for others to come: a line of a log need not be there at once.
const settleTime = 50 * time.Millisecond

// eventLog is the name of a run's file of events, in its folder.
const eventLog = "events.jsonl"

// eventBatch is how many events are read at once.
const eventBatch = 2000

// eventPump writes the events of runs to their events.jsonl and hands them to the caller. Every process that works on a run does
// the former, under a lock and from where the file ends, so that none is missing or twice.
type eventPump struct {
	r      *Runner
	kicked chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup

	mu sync.Mutex
	// seen is the number of the last event of each watched run that was handed to the caller.
	seen map[string]int64
	// named are the runs that are known to have changed; unnamed says that others may have as well.
	named   map[string]bool
	unnamed bool
	// written are the runs whose file has grown since it was last made durable.
	written map[string]bool
	// errs are the errors of the runs whose file is not up to date.
	errs map[string]error
}

func newEventPump(r *Runner) *eventPump {
	return &eventPump{r: r, kicked: make(chan struct{}, 1), quit: make(chan struct{}), seen: map[string]int64{}, named: map[string]bool{},
		written: map[string]bool{}, errs: map[string]error{}}
}

// kick says which runs have changed, as far as they are watched.
func (p *eventPump) kick(runs ...string) {
	p.mu.Lock()
	for _, id := range runs {
		p.named[id] = true
	}
	p.mu.Unlock()
	p.wake()
}

// kickAll says that any run may have changed.
func (p *eventPump) kickAll() {
	p.mu.Lock()
	p.unnamed = true
	p.mu.Unlock()
	p.wake()
}

func (p *eventPump) wake() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

// watch makes the pump follow a run from now on.
func (p *eventPump) watch(runID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.seen[runID]; !ok {
		p.seen[runID] = -1
	}
}

// start follows the runner's own run, or every run that is not final, from the events that come after this moment; of a run that was just made, from its first.
func (p *eventPump) start(ctx context.Context) error {
	runs := []store.Run{}
	if p.r.o.RunID != "" {
		run, err := p.r.o.Store.Run(ctx, p.r.o.RunID)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	} else {
		all, err := p.r.o.Store.Runs(ctx)
		if err != nil {
			return err
		}
		runs = all
	}
	for _, run := range runs {
		if run.Final() && p.r.o.RunID == "" {
			continue
		}
		p.seen[run.ID] = run.Seq
		if justMade(run) {
			p.seen[run.ID] = 0
		}
		// A process that was killed may have left the file behind. Of many runs that is mended with their next event.
		if len(runs) <= cachedRuns {
			p.named[run.ID] = true
		}
	}
	p.wake()
	p.done.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-p.kicked:
			case <-p.quit:
				return
			}
			timer.Reset(settleTime)
			select {
			case <-timer.C:
			case <-p.quit:
				return
			}
			p.flush(false)
		}
	})
	return nil
}

// justMade reports whether a run has no events yet but those of its plan: that it was made, and that some rollouts cannot be run here.
func justMade(run store.Run) bool {
	planned := 1 + run.Counts.Faulted
	if run.Final() {
		planned++
	}
	return run.Seq == int64(planned) && run.Counts.Pending+run.Counts.Faulted == run.Counts.Total
}

// stop writes what is left and returns the errors of the runs whose file is not complete.
func (p *eventPump) stop() error {
	close(p.quit)
	p.done.Wait()
	p.flush(true)
	return errors.Join(slices.Collect(maps.Values(p.errs))...)
}

// flush brings the files of the runs up to date that have changed, and at the end makes all durable.
func (p *eventPump) flush(last bool) {
	p.mu.Lock()
	named, unnamed := p.named, p.unnamed || last
	p.named, p.unnamed = map[string]bool{}, false
	p.mu.Unlock()
	if unnamed {
		p.addBehind(named)
	}
	if last {
		maps.Copy(named, p.written)
		named[p.r.o.RunID] = true
	}
	for id := range named {
		p.mu.Lock()
		seq, watched := p.seen[id]
		p.mu.Unlock()
		switch {
		case watched:
		case last && p.written[id]:
			seq = math.MaxInt64 // all of it was handed on
		default:
			continue
		}
		reached, finished, err := p.flushRun(id, seq, last)
		p.mu.Lock()
		if watched {
			p.seen[id] = reached
		}
		if finished && err == nil && p.r.o.RunID == "" {
			delete(p.seen, id) // nothing more will come
		}
		p.note(id, err)
		p.mu.Unlock()
	}
}

// addBehind adds the watched runs that have events which were not handed on. A run that is not open any more has its last one.
func (p *eventPump) addBehind(named map[string]bool) {
	open, err := p.r.o.Store.OpenRuns(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, seen := range p.seen {
		if seq, ok := open[id]; err != nil || !ok || seq != seen {
			named[id] = true
		}
	}
}

// note keeps the error of a run until its file is up to date again, and logs the first one at once. p.mu is held.
func (p *eventPump) note(runID string, err error) {
	if err == nil {
		delete(p.errs, runID)
		return
	}
	err = fmt.Errorf("the events of run %s: %w", runID, err)
	if p.errs[runID] == nil {
		p.r.o.Logger.Error("events.jsonl is not up to date", "error", err)
	}
	p.errs[runID] = err
}

// flushRun brings a run's file up to date and hands on what the caller has not seen.
func (p *eventPump) flushRun(runID string, seen int64, last bool) (reached int64, finished bool, err error) {
	ctx := context.Background()
	if removed, err := p.isRemoved(ctx, runID); removed || err != nil {
		return seen, removed, err
	}
	redactor := p.r.redactorOf(ctx, runID)
	log, written, err := p.openLog(ctx, runID, seen)
	if err != nil {
		return seen, finished, err
	}
	defer func() {
		if last {
			err = errors.Join(err, log.Sync())
		}
		err = errors.Join(err, log.Close())
	}()
	if seen < 0 {
		seen = written // a run that was taken up on the way
	}
	for {
		events, err := p.r.o.Store.Events(ctx, runID, min(seen, written), eventBatch)
		if err != nil || len(events) == 0 {
			return seen, finished, err
		}
		var lines []byte
		for i := range events {
			events[i].Data = redactor.JSON(events[i].Data)
		}
		for _, e := range events {
			if e.Seq > written {
				line, err := json.Marshal(e)
				if err != nil {
					return seen, finished, err
				}
				lines = append(append(lines, line...), '\n')
				written = e.Seq
			}
		}
		if _, err := log.Write(lines); err != nil {
			return seen, finished, err
		}
		p.written[runID] = p.written[runID] || len(lines) > 0
		for _, e := range events {
			if e.Seq > seen {
				if p.r.o.Events != nil {
					p.r.o.Events(e)
				}
				if seen = e.Seq; e.Type == store.RunFinished {
					finished = true
					p.tidy(ctx, runID)
				}
			}
		}
	}
}

// isRemoved reports whether a run was removed from the store, so that its folder must not be made again. The store is asked only if the run
// has no file yet, or none any more.
func (p *eventPump) isRemoved(ctx context.Context, runID string) (bool, error) {
	if _, err := os.Lstat(filepath.Join(workspace.RunDir(p.r.o.Store.Dir(), runID), eventLog)); err == nil {
		return false, nil
	}
	_, err := p.r.o.Store.Run(ctx, runID)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// tidy removes what nobody needs of a run that has just become final.
func (p *eventPump) tidy(ctx context.Context, runID string) {
	if err := Tidy(ctx, p.r.o.Store, runID); err != nil {
		p.r.o.Logger.Warn("the workspaces of a run were not removed", "run", runID, "error", err)
	}
}

// openLog opens a run's events.jsonl, locked, and says which event is the last in it. A file that knows of events which the store has lost in a
// power cut is begun anew. seen is the number of an event that is in the store.
func (p *eventPump) openLog(ctx context.Context, runID string, seen int64) (log *os.File, written int64, err error) {
	if err := p.r.o.Store.InPlace(); err != nil {
		return nil, 0, err
	}
	dir := workspace.RunDir(p.r.o.Store.Dir(), runID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, err
	}
	path := filepath.Join(dir, eventLog)
	log, last, err := durable.OpenLog(path, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, log.Close())
		}
	}()
	var e store.Event
	if last != nil {
		if err := json.Unmarshal(last, &e); err != nil {
			return nil, 0, fmt.Errorf("%s: its last line is not an event: %w", path, err)
		}
	}
	if e.Seq <= seen {
		return log, e.Seq, nil
	}
	run, err := p.r.o.Store.Run(ctx, runID) // read under the lock: what is in the file was in the store before
	if err != nil || e.Seq <= run.Seq {
		return log, e.Seq, err
	}
	if err := log.Truncate(0); err != nil {
		return nil, 0, err
	}
	_, err = log.Seek(0, io.SeekStart)
	return log, 0, err
}
