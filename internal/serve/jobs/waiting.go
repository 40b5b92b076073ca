package jobs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// maxTail bounds the events that are kept in memory for waiting requests. Earlier events are read
// from the store.
const maxTail = 500

// tail is the end of a job's log: the events after from. It is never changed.
type tail struct {
	store.JobLog
	from int64
}

// readTail reads the new events of a log.
func (h *handler) readTail(ctx context.Context, id string, known tail) (now tail, moved, last bool, err error) {
	now = known
	for {
		log, err := h.st.JobEvents(ctx, id, now.Read, nil, maxTail)
		if err != nil {
			return known, false, false, err
		}
		moved = moved || len(log.Events) > 0 || log.Ended
		log.Events = slices.Concat(now.Events, log.Events)
		now = tail{log, now.from}.cut()
		if !log.More {
			return now, moved, log.Ended, nil
		}
	}
}

// cut drops the first events of a tail that is too long or too large; its last event stays.
func (t tail) cut() tail {
	size, keep := 0, len(t.Events)
	for keep > 0 && len(t.Events)-keep < maxTail {
		if size += t.Events[keep-1].Size(); size > store.MaxPage && keep < len(t.Events) {
			break
		}
		keep--
	}
	if keep > 0 {
		t.from = t.Events[keep-1].Seq
		t.Events = slices.Clone(t.Events[keep:]) // the clone frees the events before them
	}
	return t
}

// after returns at most limit events of the given types after a number, and how far that reads.
func (t tail) after(n int64, types []string, limit int) (found []store.JobEvent, read int64) {
	for _, e := range t.Events {
		if e.Seq <= n || len(types) > 0 && !slices.Contains(types, e.Type) {
			continue
		}
		found = append(found, e)
		if len(found) == limit {
			return found, e.Seq
		}
	}
	return found, max(t.Read, n)
}

// waitEvents waits for events after a read of a log that had none of the types.
func (h *handler) waitEvents(ctx context.Context, id string, q logQuery, log store.JobLog) (store.JobLog, error) {
	w := h.tails.join(id, id, tail{JobLog: store.JobLog{Read: log.Read}, from: log.Read})
	defer h.tails.leave(id, w)
	timer := time.NewTimer(q.wait)
	defer timer.Stop()
	for {
		known, moved, err := w.now()
		if err != nil {
			return log, err
		}
		switch {
		case known.Read <= log.Read: // nothing is new
			log.Ended = known.Ended
		case log.Read < known.from:
			if log, err = h.st.JobEvents(ctx, id, log.Read, q.types, q.limit); err != nil {
				return log, err
			}
		default:
			log.Events, log.Read = known.after(log.Read, q.types, q.limit)
			log.Ended = known.Ended
		}
		if len(log.Events) > 0 || log.Ended {
			return log, nil
		}
		select {
		case <-moved:
		case <-timer.C:
			return log, nil
		case <-h.o.Draining:
			return log, nil
		case <-ctx.Done():
			return log, ctx.Err()
		}
	}
}

// readStatus reads a job whose status may have changed.
func (h *handler) readStatus(ctx context.Context, id string,
	known store.Job) (now store.Job, moved, last bool, err error) {
	now, err = h.find(ctx, id)
	return now, now.Status != known.Status, now.Status.IsTerminal(), err
}

// waitStatus waits until the status of a job changes, or the time is over.
func (h *handler) waitStatus(ctx context.Context, job store.Job, limit time.Duration) (store.Job, error) {
	w := h.states.join(job.ID, cmp.Or(job.RolloutOf, job.ID), job)
	defer h.states.leave(job.ID, w)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		known, moved, err := w.now()
		if err != nil || known.Status != job.Status {
			return known, err
		}
		select {
		case <-moved:
		case <-timer.C:
			return h.find(ctx, job.ID) // with its present progress
		case <-h.o.Draining:
			return job, nil
		case <-ctx.Done():
			return job, ctx.Err()
		}
	}
}
