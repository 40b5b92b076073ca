package service

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

const (
	// kept is how many of its newest events are kept in memory for a run that is read.
	kept = 512
	// eventBatch is how many events are read at once.
	eventBatch = 500
)

// Event is one event of a run, redacted.
type Event struct {
	schemas.Event
	// JSON is the event as all its readers get it. It is encoded once.
	JSON json.RawMessage
}

// Events is a part of the events of a run.
type Events struct {
	Events []Event
	// Next is the number of the last event that was looked at, up to which this part goes.
	Next int64
	// Final says that no event will come after Next.
	Final bool
	// Changed is closed when there may be more. It is nil if there is more already.
	Changed <-chan struct{}
}

// tail is the end of the events of a run: those after the number from, redacted. It never changes.
type tail struct {
	events []Event
	// last is the number of the last event, up to which the run was read.
	from, last int64
	final      bool
	// begun is false if nothing was read yet.
	begun bool
}

// Reader reads the events of a run. Its opener closes it.
type Reader struct {
	s *Service
	*Follower[tail]
	runID string
}

// Read begins to read the events of a run after a number; ErrNotFound if there is no such run. All
// readers of a run share its newest events.
func (s *Service) Read(ctx context.Context, runID string, after int64) (*Reader, error) {
	if _, err := s.st.Run(ctx, runID); err != nil {
		return nil, err
	}
	return &Reader{s, s.events.Follow(runID, tail{from: after}), runID}, nil
}

// After returns at most limit events after a number; with types, only those of these types.
func (r *Reader) After(ctx context.Context, after int64, limit int, types []schemas.EventType) (Events, error) {
	t, changed, err := r.Now(ctx)
	if err != nil {
		return Events{}, err
	}
	if after < t.from {
		return r.older(ctx, t.from, after, limit, types)
	}
	out := Events{Next: max(after, t.last), Final: t.final, Changed: changed}
	for _, e := range t.events {
		if e.Seq <= after || !ofType(e, types) {
			continue
		}
		if len(out.Events) == limit {
			out.Next, out.Final, out.Changed = out.Events[limit-1].Seq, false, nil
			break
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

// readTail reads the events since a tail was read.
func (s *Service) readTail(ctx context.Context, runID string, t tail) (tail, error) {
	run, err := s.st.Run(ctx, runID)
	if err != nil {
		return t, err
	}
	if !t.begun { // events far back are not kept
		t.from = max(min(t.from, run.Seq), run.Seq-kept)
		t.last, t.begun = t.from, true
	}
	for t.last < run.Seq {
		batch, err := s.eventsAfter(ctx, runID, t.last, eventBatch)
		if err != nil {
			return t, err
		}
		if len(batch) == 0 {
			break // a power cut may take events back
		}
		t.events = append(t.events, batch...)
		t.last = batch[len(batch)-1].Seq
	}
	if over := len(t.events) - kept; over > 0 {
		t.from = t.events[over-1].Seq
		t.events = append([]Event(nil), t.events[over:]...)
	}
	t.final = run.Final() && t.last >= run.Seq
	return t, nil
}

// older reads events that are not kept, up to the number from.
func (r *Reader) older(ctx context.Context, from, after int64, limit int, types []schemas.EventType) (Events, error) {
	out := Events{Next: after}
	for len(out.Events) < limit && out.Next < from {
		batch, err := r.s.eventsAfter(ctx, r.runID, out.Next, min(eventBatch, max(limit, 1)))
		if err != nil || len(batch) == 0 {
			return out, err
		}
		for _, e := range batch {
			if len(out.Events) == limit {
				return out, nil
			}
			out.Next = e.Seq
			if ofType(e, types) {
				out.Events = append(out.Events, e)
			}
		}
	}
	return out, nil
}

func ofType(e Event, types []schemas.EventType) bool {
	for _, t := range types {
		if e.Type == t {
			return true
		}
	}
	return len(types) == 0
}

// eventsAfter reads events of the store, redacted.
func (s *Service) eventsAfter(ctx context.Context, runID string, after int64, limit int) ([]Event, error) {
	red, err := s.redactors.of(ctx, runID)
	if err != nil {
		return nil, err
	}
	all, err := s.st.Events(ctx, runID, after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Event, 0, len(all))
	for _, e := range all {
		e.Data = red.JSON(e.Data)
		event := report.EventOf(e)
		text, err := jsonobj.Marshal(event)
		if err != nil {
			return nil, err
		}
		out = append(out, Event{event, text})
	}
	return out, nil
}
