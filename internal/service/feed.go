package service

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

const (
	// kept is how many of its newest events a feed has in memory.
	kept = 512
	// eventBatch is how many events are read at once.
	eventBatch = 500
)

// Event is one event of a run, redacted.
type Event struct {
	schemas.Event
	// JSON is the event as all its readers get it: it is encoded once.
	JSON json.RawMessage
}

// Events is a part of the events of a run.
type Events struct {
	Events []Event
	// Next is the number up to which this part goes: that of the last event that was looked at.
	Next int64
	// Final says that no event will come after Next.
	Final bool
	// Changed is closed when there may be more. It is nil if there is more already.
	Changed <-chan struct{}
}

// feeds are the events of the runs that somebody reads. All readers of a run share one feed, so
// that what has changed is read once, however many wait for it.
type feeds struct {
	mu   sync.Mutex
	open map[string]*feed
}

// feed is the end of the events of a run.
type feed struct {
	runID string
	// readers counts who uses the feed; feeds.mu guards it.
	readers int

	mu sync.Mutex
	// changed is closed when what follows may be out of date; nil if nothing was read.
	changed <-chan struct{}
	// events are those after the number from, redacted; last is the number of the last one.
	events     []Event
	from, last int64
	final      bool
}

// Reader reads the events of a run. Whoever opened it closes it.
type Reader struct {
	s *Service
	f *feed
}

// Read begins to read the events of a run; ErrNotFound if there is none.
func (s *Service) Read(ctx context.Context, runID string) (*Reader, error) {
	if _, err := s.st.Run(ctx, runID); err != nil {
		return nil, err
	}
	s.feeds.mu.Lock()
	defer s.feeds.mu.Unlock()
	f, ok := s.feeds.open[runID]
	if !ok {
		f = &feed{runID: runID}
		s.feeds.open[runID] = f
	}
	f.readers++
	return &Reader{s, f}, nil
}

// Close ends the reading.
func (r *Reader) Close() {
	feeds := &r.s.feeds
	feeds.mu.Lock()
	defer feeds.mu.Unlock()
	if r.f.readers--; r.f.readers == 0 {
		delete(feeds.open, r.f.runID)
	}
}

// After returns at most limit events after a number; with types, only those of these types.
func (r *Reader) After(ctx context.Context, after int64, limit int, types []schemas.EventType) (Events, error) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.refresh(ctx, after); err != nil {
		return Events{}, err
	}
	if after < f.from {
		return r.older(ctx, after, limit, types)
	}
	out := Events{Next: max(after, f.last), Final: f.final, Changed: f.changed}
	for _, e := range f.events {
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

// refresh reads what has come since the last time.
func (r *Reader) refresh(ctx context.Context, after int64) error {
	f := r.f
	if f.changed != nil {
		select {
		case <-f.changed:
		default:
			return nil
		}
	}
	changed := r.s.st.Changed(f.runID)
	run, err := r.s.st.Run(ctx, f.runID)
	if err != nil {
		return err
	}
	if f.changed == nil { // the first time: what is far back is not kept
		f.from = max(min(after, run.Seq), run.Seq-kept)
		f.last = f.from
	}
	for f.last < run.Seq {
		batch, err := r.s.eventsAfter(ctx, f.runID, f.last, eventBatch)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			break // a power cut may take events back
		}
		f.events = append(f.events, batch...)
		f.last = batch[len(batch)-1].Seq
	}
	if over := len(f.events) - kept; over > 0 {
		f.from = f.events[over-1].Seq
		f.events = append([]Event(nil), f.events[over:]...)
	}
	f.changed, f.final = changed, run.Final() && f.last >= run.Seq
	return nil
}

// older reads events that are not kept.
func (r *Reader) older(ctx context.Context, after int64, limit int, types []schemas.EventType) (Events, error) {
	out := Events{Next: after}
	for len(out.Events) < limit && out.Next < r.f.from {
		batch, err := r.s.eventsAfter(ctx, r.f.runID, out.Next, min(eventBatch, max(limit, 1)))
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
