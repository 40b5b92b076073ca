package telemetry

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"slices"
	"strconv"

	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/telemetry/otlp"
)

const (
	// eventBatch is the most events that are read at once, spanBatch the most spans that are sent at
	// once.
	eventBatch = 200
	spanBatch  = 512
)

// send sends the events of a run since the last time, and then its metrics. The last time it
// waits for another process that sends the run, because that may have read its last events already.
func (e *Exporter) send(ctx context.Context, runID string, last bool) error {
	open := durable.TryOpenLog
	if last {
		open = func(path string, mode os.FileMode) (*os.File, []byte, error) {
			return durable.WaitOpenLog(ctx, path, mode, func() {
				e.o.Notice(fmt.Sprintf("--otlp: waiting for another process, which sends run %s", runID))
			})
		}
	}
	log, seq, err := e.openLog(runID, open)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the log only says how far the run was sent
	grown := false
	for {
		all, reached, err := e.spansAfter(ctx, runID, seq)
		if err != nil {
			return err
		}
		if reached == seq {
			break
		}
		failpoint.Hit("telemetry.sending")
		if err := e.post(ctx, all); err != nil {
			return err
		}
		failpoint.Hit("telemetry.sent")
		if _, err := fmt.Fprintln(log, reached); err != nil {
			return err
		}
		failpoint.Hit("telemetry.noted")
		seq, grown = reached, true
	}
	if grown || last {
		return e.sendMetrics(ctx, runID)
	}
	return nil
}

// openLog opens and locks the file that says which events of a run this collector has. The last
// line has the number of the last event.
func (e *Exporter) openLog(runID string,
	open func(string, os.FileMode) (*os.File, []byte, error)) (log *os.File, seq int64, err error) {
	if err := e.o.Store.InPlace(); err != nil {
		return nil, 0, err
	}
	run := files.Of(e.o.Store).Run(runID)
	if err := os.MkdirAll(string(run), 0o700); err != nil {
		return nil, 0, err
	}
	log, last, err := open(run.Log(e.logName()), 0o600)
	if errors.Is(err, durable.ErrLocked) {
		return nil, 0, errElsewhere
	}
	if err != nil || last == nil {
		return log, 0, err
	}
	seq, err = strconv.ParseInt(string(last), 10, 64)
	if err != nil {
		return log, 0, nil // the file is damaged: spans that are sent twice have the same ids
	}
	return log, seq, nil
}

// logName differs for each collector.
func (e *Exporter) logName() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.o.Client.Endpoint().Traces))
	return fmt.Sprintf("otlp-%08x.log", h.Sum32())
}

// spansAfter returns the spans that have ended with the next events of a run, and the number of the
// last of these events.
func (e *Exporter) spansAfter(ctx context.Context, runID string,
	seq int64) (all []*trace.Span, reached int64, err error) {
	events, err := e.o.Store.Events(ctx, runID, seq, eventBatch)
	if err != nil || len(events) == 0 {
		return nil, seq, err
	}
	run, err := e.o.Planned(ctx, runID)
	if err != nil {
		return nil, seq, err
	}
	var order []string
	of := map[string][]store.Event{}
	for _, one := range events {
		reached = one.Seq
		if one.RolloutID == "" {
			continue
		}
		if of[one.RolloutID] == nil {
			order = append(order, one.RolloutID)
		}
		of[one.RolloutID] = append(of[one.RolloutID], one)
	}
	err = e.o.Store.Snapshot(ctx, runID, func(v store.View) error {
		all = nil
		for _, id := range order {
			rv, err := v.Rollout(id)
			if err != nil {
				return err
			}
			b := builder{run: run, storeDir: e.o.Store.Dir(), content: e.o.Content, rv: rv}
			for _, one := range of[id] {
				if err := b.add(one); err != nil {
					return fmt.Errorf("rollout %s: %w", id, err)
				}
			}
			all = append(all, b.spans...)
		}
		return nil
	})
	return all, reached, err
}

// post sends spans. It counts and drops those that the collector refuses for good.
func (e *Exporter) post(ctx context.Context, all []*trace.Span) error {
	for len(all) > 0 {
		n := min(len(all), spanBatch)
		rejected, err := e.o.Client.Traces(ctx, &collectortrace.ExportTraceServiceRequest{
			ResourceSpans: []*trace.ResourceSpans{{
				Resource: e.o.Origin.resource(), ScopeSpans: []*trace.ScopeSpans{{Scope: e.o.Origin.scope(), Spans: all[:n]}},
			}}})
		if refused := (*otlp.Refused)(nil); errors.As(err, &refused) {
			e.tell(err)
			rejected, err = int64(n), nil
		}
		if err != nil {
			return e.unreachable(err)
		}
		e.refused += rejected
		all = all[n:]
	}
	return nil
}

// unreachable returns the error of a request that may succeed later.
func (e *Exporter) unreachable(err error) error {
	e.after = 0
	if later := (*otlp.Later)(nil); errors.As(err, &later) {
		e.after = later.After
	}
	return &unreachableError{err}
}

// unsent counts the spans of a run that were not sent.
func (e *Exporter) unsent(ctx context.Context, runID string) (n int64, err error) {
	log, seq, err := e.openLog(runID, durable.TryOpenLog)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	for {
		all, reached, err := e.spansAfter(ctx, runID, seq)
		if err != nil || reached == seq {
			return n, err
		}
		n, seq = n+int64(len(all)), reached
	}
}

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
