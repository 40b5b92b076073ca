package serve

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/schemas"
)

const (
	// maxStreams is how many streams of events there may be at once.
	maxStreams = 256
	// heartbeat is how often a stream sends something, so that a connection that is gone is noticed.
	heartbeat = 15 * time.Second
)

// streams counts the streams of events.
type streams struct{ n atomic.Int64 }

// begin reports whether there may be one more; then end ends it.
func (s *streams) begin() bool {
	if s.n.Add(1) > maxStreams {
		s.n.Add(-1)
		return false
	}
	return true
}

func (s *streams) end() { s.n.Add(-1) }

// stream sends events as they come, until the last one of the run. A client that comes back says
// with Last-Event-ID where it was; 204 tells one that has seen the last event not to come again.
func (a *eventsAPI) stream(w http.ResponseWriter, r *http.Request, events *service.Reader, after int64, types []schemas.EventType) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			return problem(http.StatusBadRequest, "invalid-parameter", "Last-Event-ID: expected the id of an event, got "+quoted(last))
		}
		after = n
	}
	if !a.streams.begin() {
		w.Header().Set("Retry-After", "5")
		return problem(http.StatusServiceUnavailable, "too-many-streams", fmt.Sprintf("there are %d streams of events, which is the most; use long polls, or try again", maxStreams))
	}
	defer a.streams.end()
	part, err := events.After(r.Context(), after, pageSize, types)
	if err != nil {
		return err
	}
	if part.Final && len(part.Events) == 0 && r.Header.Get("Last-Event-ID") != "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	alive := time.NewTicker(heartbeat)
	defer alive.Stop()
	for {
		if err := out.send(part.Events); err != nil || part.Final {
			return nil //nolint:nilerr // the client is gone
		}
		if part.Changed != nil {
			select {
			case <-part.Changed:
			case <-alive.C:
				if out.comment("alive") != nil {
					return nil
				}
			case <-r.Context().Done():
				return nil
			case <-a.draining:
				return nil
			}
		}
		if part, err = events.After(r.Context(), part.Next, pageSize, types); err != nil {
			return nil //nolint:nilerr // the client comes again and is told then
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *eventWriter) send(events []service.Event) error {
	for _, e := range events {
		if _, err := fmt.Fprintf(o.w, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Type, e.JSON); err != nil {
			return err
		}
	}
	return o.flush()
}

func (o *eventWriter) comment(text string) error {
	if _, err := fmt.Fprintf(o.w, ": %s\n\n", text); err != nil {
		return err
	}
	return o.flush()
}

// flush sends what was written, for which the client has as long as for a whole answer.
func (o *eventWriter) flush() error {
	_ = o.control.SetWriteDeadline(time.Now().Add(answerTimeout)) // a writer without deadlines is a test's
	return o.control.Flush()
}
