package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// documentDelay is how long an executor waits after a change before it writes a results document.
const documentDelay = time.Second

// documents keeps the results documents of the store's runs up to date.
type documents struct {
	// save writes the document of a run; tell is called with each new error.
	save func(ctx context.Context, runID string) error
	tell func(error)

	mu      sync.Mutex
	changed map[string]bool
	timer   *time.Timer
	closed  bool
	// errs are the errors of the runs whose document is not up to date.
	errs map[string]error
	// saving is held while documents are written.
	saving sync.Mutex
}

func newDocuments(save func(ctx context.Context, runID string) error, tell func(error)) *documents {
	return &documents{save: save, tell: tell, changed: map[string]bool{}, errs: map[string]error{}}
}

// changedRun remembers that a run has changed, and schedules its document to be written.
func (d *documents) changedRun(runID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed[runID] = true
	if d.timer == nil && !d.closed {
		d.timer = time.AfterFunc(documentDelay, d.saveChanged)
	}
}

// saveChanged writes the documents of the runs that have changed. It pauses ten times as long as
// this took before the next time.
func (d *documents) saveChanged() {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	runs := d.changed
	d.changed = map[string]bool{}
	d.mu.Unlock()
	began := time.Now()
	for id := range runs {
		d.saved(id, d.save(context.Background(), id))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = nil
	if len(d.changed) > 0 && !d.closed {
		d.timer = time.AfterFunc(max(documentDelay, 10*time.Since(began)), d.saveChanged)
	}
}

// saved keeps the error of a run until its document is written, and reports the first one at once,
// because an executor may run for months.
func (d *documents) saved(runID string, err error) {
	before := d.errs[runID]
	if err == nil || errors.Is(err, store.ErrNotFound) { // a removed run has no document
		delete(d.errs, runID)
		return
	}
	d.errs[runID] = err
	if before == nil {
		d.tell(err)
	}
}

// close writes the remaining documents, and returns the errors of the runs whose document could not
// be written.
func (d *documents) close() error {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.saveChanged()
	return errors.Join(slices.Collect(maps.Values(d.errs))...)
}
