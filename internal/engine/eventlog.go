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
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
)

// settleTime is how long the log waits after a change for further changes. Lines need not be
// written at once.
const settleTime = 50 * time.Millisecond

// eventBatch is how many events are read at once.
const eventBatch = 2000

// eventLog writes the events of runs to their events.jsonl and hands them to the caller. Every
// process that works on a run writes its file, under a lock and from where the file ends, so that
// no event is missing or written twice.
type eventLog struct {
	o      *Options
	runs   *runCache
	kicked chan struct{}
	quit   chan struct{}
	done   sync.WaitGroup
	// pruned is when blocks of files were last removed from the store, or when a run first ended here.
	pruned time.Time
	// failFast is called with every event that is handed on.
	failFast func(context.Context, store.Event)

	mu sync.Mutex
	// seen is the number of the last event of each watched run that was handed to the caller.
	seen map[string]int64
	// named holds the runs that are known to have changed. unnamed says that others may have
	// changed as well.
	named   map[string]bool
	unnamed bool
	// written are the runs whose file has grown since it was last made durable.
	written map[string]bool
	// errs holds the errors of the runs whose file is not up to date.
	errs map[string]error
}

func newEventLog(o *Options, runs *runCache, failFast func(context.Context, store.Event)) *eventLog {
	return &eventLog{o: o, runs: runs, failFast: failFast, kicked: make(chan struct{}, 1), quit: make(chan struct{}),
		seen: map[string]int64{}, named: map[string]bool{},
		written: map[string]bool{}, errs: map[string]error{}}
}

// WriteEvents brings the events.jsonl of a run up to date, for a process that has changed the run
// and runs nothing. red removes secrets from the file.
func WriteEvents(ctx context.Context, s Store, runID string, red *redact.Redactor) error {
	o := &Options{Store: s}
	runs := newRunCache(o)
	runs.load = func(context.Context, string) (*rollout.Run, error) { return &rollout.Run{Redact: red}, nil }
	_, _, err := newEventLog(o, runs, nil).flushRun(ctx, runID, math.MaxInt64, true)
	return err
}

// kick reports which runs have changed. Only the files of watched runs are written.
func (l *eventLog) kick(runs ...string) {
	l.mu.Lock()
	for _, id := range runs {
		l.named[id] = true
	}
	l.mu.Unlock()
	l.wake()
}

// kickAll reports that any run may have changed.
func (l *eventLog) kickAll() {
	l.mu.Lock()
	l.unnamed = true
	l.mu.Unlock()
	l.wake()
}

func (l *eventLog) wake() {
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

// watch makes the log follow a run from now on.
func (l *eventLog) watch(runID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[runID]; !ok {
		l.seen[runID] = -1
	}
}

// begin follows a run from its next event, or from its first if it was just made. repairs says that its file is
// brought up to date before that.
func (l *eventLog) begin(run store.Run, repairs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[run.ID] = run.Seq
	if justMade(run) {
		l.seen[run.ID] = 0
	}
	if repairs {
		l.named[run.ID] = true
	}
}

// start follows the runner's own run, or every run that is not final, from the next event on. It
// follows a run that was just made from its first event.
func (l *eventLog) start(ctx context.Context) error {
	runs := []store.Run{}
	if l.o.RunID != "" {
		run, err := l.o.Store.Run(ctx, l.o.RunID)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	} else {
		all, err := l.o.Store.Runs(ctx)
		if err != nil {
			return err
		}
		runs = all
	}
	for _, run := range runs {
		if run.Final() && l.o.RunID == "" {
			continue
		}
		if run.Final() { // the process that ended it may have been killed before it tidied up
			l.tidy(ctx, run.ID)
		}
		// A process that was killed may have left a file that lacks events. If there are many runs,
		// their next event repairs that.
		l.begin(run, len(runs) <= cachedRuns)
	}
	l.wake()
	l.done.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-l.kicked:
			case <-l.quit:
				return
			}
			timer.Reset(settleTime)
			select {
			case <-timer.C:
			case <-l.quit:
				return
			}
			l.flush(false)
		}
	})
	return nil
}

// justMade reports whether a run has only the events of its plan: its creation, and the rollouts
// that cannot be run.
func justMade(run store.Run) bool {
	planned := 1 + run.Counts.Faulted
	if run.Final() {
		planned++
	}
	return run.Seq == int64(planned) && run.Counts.Pending+run.Counts.Faulted == run.Counts.Total
}

// stop writes the events that are left and returns the errors of the runs whose file is not
// complete.
func (l *eventLog) stop() error {
	close(l.quit)
	l.done.Wait()
	l.flush(true)
	return errors.Join(slices.Collect(maps.Values(l.errs))...)
}

// flush brings the files of all changed runs up to date. The last flush makes them durable.
func (l *eventLog) flush(last bool) {
	l.mu.Lock()
	named, unnamed := l.named, l.unnamed || last
	l.named, l.unnamed = map[string]bool{}, false
	l.mu.Unlock()
	if unnamed {
		l.addBehind(named)
	}
	if last {
		maps.Copy(named, l.written)
		named[l.o.RunID] = true
	}
	for id := range named {
		l.mu.Lock()
		seq, watched := l.seen[id]
		l.mu.Unlock()
		switch {
		case watched:
		case last && l.written[id]:
			seq = math.MaxInt64 // all events were handed on
		default:
			continue
		}
		reached, finished, err := l.flushRun(context.Background(), id, seq, last)
		l.mu.Lock()
		if watched {
			l.seen[id] = reached
		}
		if finished && err == nil && l.o.RunID == "" {
			delete(l.seen, id) // no more events will come
		}
		l.note(id, err)
		l.mu.Unlock()
	}
}

// addBehind adds the watched runs whose last event was not handed on yet. A run that is not open
// any more has had its last event.
func (l *eventLog) addBehind(named map[string]bool) {
	open, err := l.o.Store.OpenRuns(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, seen := range l.seen {
		if seq, ok := open[id]; err != nil || !ok || seq != seen {
			named[id] = true
		}
	}
}

// note keeps the error of a run until its file is up to date again, and logs the first one at once.
// l.mu is held.
func (l *eventLog) note(runID string, err error) {
	if err == nil {
		delete(l.errs, runID)
		return
	}
	err = fmt.Errorf("the events of run %s: %w", runID, err)
	if l.errs[runID] == nil {
		l.o.Logger.Error("events.jsonl is not up to date", "error", err)
	}
	l.errs[runID] = err
}

// flushRun brings a run's file up to date and hands on the events that the caller has not seen.
func (l *eventLog) flushRun(ctx context.Context, runID string, seen int64, last bool) (
	reached int64, finished bool, err error) {
	if removed, err := l.isRemoved(ctx, runID); removed || err != nil {
		return seen, removed, err
	}
	redactor := l.runs.redactor(ctx, runID)
	log, written, err := l.openLog(ctx, runID, seen)
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
		seen = written // the log began to follow the run in the middle
	}
	for {
		events, err := l.o.Store.Events(ctx, runID, min(seen, written), eventBatch)
		if err != nil || len(events) == 0 {
			return seen, finished, err
		}
		var lines []byte
		for i := range events {
			events[i].Data = redactor.JSON(events[i].Data)
		}
		for _, e := range events {
			if e.Seq > written {
				line, err := jsonobj.Marshal(e)
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
		l.written[runID] = l.written[runID] || len(lines) > 0
		for _, e := range events {
			if e.Seq > seen {
				if l.o.Events != nil {
					l.o.Events(e)
				}
				l.failFast(ctx, e)
				if seen = e.Seq; e.Type == store.RunFinished {
					finished = true
					l.tidy(ctx, runID)
				}
			}
		}
	}
}

// isRemoved reports whether a run was removed from the store. The folder of a removed run must not
// be made again. It asks the store only if the run has no file.
func (l *eventLog) isRemoved(ctx context.Context, runID string) (bool, error) {
	if _, err := os.Lstat(files.Of(l.o.Store).Run(runID).Events()); err == nil {
		return false, nil
	}
	_, err := l.o.Store.Run(ctx, runID)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// tidy removes the files of a run that nobody needs once it is final.
func (l *eventLog) tidy(ctx context.Context, runID string) {
	if err := Tidy(ctx, l.o.Store, runID); err != nil {
		l.o.Logger.Warn("the workspaces of a run were not removed", "run", runID, "error", err)
	}
	if l.pruned.IsZero() {
		l.pruned = l.o.Now()
	}
	if l.o.Store.KeepsFiles() == 0 || l.o.Now().Sub(l.pruned) < pruneInterval {
		return
	}
	l.pruned = l.o.Now()
	if _, err := l.o.Store.PruneBlocks(ctx, pruneAge); err != nil {
		l.o.Logger.Warn("files that no rollout needs were not removed from the store", "error", err)
	}
}

// Files that no rollout needs are removed from the store every so often, when a run ends. They stay
// for a day, because a suspension that is in progress may have stored them.
const (
	pruneInterval = time.Hour
	pruneAge      = 24 * time.Hour
)

// openLog opens a run's events.jsonl, locks it, and returns the number of its last event. After a
// power cut the file may have events that the store has lost; then the file is written anew. seen
// is the number of an event that is in the store.
func (l *eventLog) openLog(ctx context.Context, runID string, seen int64) (log *os.File, written int64, err error) {
	if err := l.o.Store.InPlace(); err != nil {
		return nil, 0, err
	}
	folder := files.Of(l.o.Store).Run(runID)
	if err := os.MkdirAll(string(folder), 0o700); err != nil {
		return nil, 0, err
	}
	path := folder.Events()
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
	run, err := l.o.Store.Run(ctx, runID) // read under the lock: every event in the file was in the store before
	if err != nil || e.Seq <= run.Seq {
		return log, e.Seq, err
	}
	if err := log.Truncate(0); err != nil {
		return nil, 0, err
	}
	_, err = log.Seek(0, io.SeekStart)
	return log, 0, err
}
