package telemetry

import (
	"context"
	"maps"
	"os"
	"slices"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/files"
)

// beginLogs makes the logs of the runs that have changed before anything is sent. By its log a run
// is found if this process is killed and the run is final by then.
func (e *Exporter) beginLogs() {
	e.mu.Lock()
	changed := slices.Collect(maps.Keys(e.changed))
	e.mu.Unlock()
	for _, id := range changed {
		if e.begun[id] {
			continue
		}
		if log, _, err := e.openLog(id, durable.TryOpenLog); err == nil {
			_ = log.Close() // nothing was written
			e.begun[id] = true
			failpoint.Hit("telemetry.begun")
		} // otherwise another process sends the run, or send reports the error
	}
}

// findLeftOver marks the runs of which this collector has only a part as changed.
func (e *Exporter) findLeftOver() {
	runs, err := os.ReadDir(files.Of(e.o.Store).Runs())
	if err != nil {
		return // there are no runs yet
	}
	for _, run := range runs {
		id := run.Name()
		if _, err := os.Stat(files.Of(e.o.Store).Run(id).Log(e.logName())); err != nil {
			continue
		}
		log, seq, err := e.openLog(id, durable.TryOpenLog)
		if err != nil {
			continue // another process sends it
		}
		more, err := e.o.Store.Events(context.Background(), id, seq, 1)
		_ = log.Close() // nothing was written
		if err == nil && len(more) > 0 {
			e.Changed(id)
		}
	}
}
