package serve

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/sse"
	"github.com/evalrun/evalrun/schemas"
)

// maxStreams is how many streams of events there may be at once.
const maxStreams = 256

// stream sends events as they happen, until the last one of the run. A client that reconnects says
// with Last-Event-ID where it was. 204 tells a client that has seen the last event not to
// reconnect.
func (a *eventsAPI) stream(w http.ResponseWriter, r *http.Request, events *service.Reader, after int64,
	types []schemas.EventType) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			return problem(http.StatusBadRequest, "invalid-parameter",
				"Last-Event-ID: expected the id of an event, got "+quoted(last))
		}
		after = n
	}
	s, err := sse.Answer(w).Open(a.streams, "", a.draining)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		return problem(http.StatusServiceUnavailable, "too-many-streams",
			fmt.Sprintf("there are %d streams of events, which is the most; use long polls, or try again", maxStreams))
	}
	defer s.Close()
	part, err := events.After(r.Context(), after, pageSize, types)
	if err != nil {
		return err
	}
	if part.Final && len(part.Events) == 0 && r.Header.Get("Last-Event-ID") != "" {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	for {
		var out []sse.Event
		for _, e := range part.Events {
			out = append(out, sse.Event{ID: strconv.FormatInt(e.Seq, 10), Name: string(e.Type), Data: e.JSON})
		}
		if s.Send(out...) != nil || part.Final || part.Changed != nil && !s.Wait(r.Context(), part.Changed, 0) {
			return nil // the client is gone, or may wait no more
		}
		if part, err = events.After(r.Context(), part.Next, pageSize, types); err != nil {
			return nil //nolint:nilerr // the client comes again and is told then
		}
	}
}
