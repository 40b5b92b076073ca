package crash

import (
	"io"
	"net/http"

	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// target is the entry notify of an eval set for the service.
func (s *jobService) target() []map[string]any {
	return []map[string]any{{"url": s.URL + "/told", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "events": []notify.Kind{notify.Suspended, notify.Finished}}}
}

func (s *jobService) tell(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[r.Header.Get("webhook-id")]++
	w.WriteHeader(http.StatusNoContent)
}

// checkTold makes sure that every event was told that its target wants to know, or still waits to
// be: a process that is stopped may be about to tell it.
func (s *scenario) checkTold(st *rules.Store, events []store.Event, note func(string, ...any)) {
	s.t.Helper()
	if !s.notifies {
		return
	}
	left, err := st.Undelivered(s.t.Context(), s.run)
	if err != nil {
		s.t.Fatal(err)
	}
	waits := map[int64]bool{}
	for _, n := range left {
		waits[n.Seq] = !n.DueAt.IsZero()
	}
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	parts := map[store.EventType]string{store.RolloutSuspended: "suspended", store.RunFinished: "finished"}
	told := 0
	for _, e := range events {
		part, wanted := parts[e.Type]
		switch {
		case !wanted:
		case s.service.told[notify.MessageID(s.run, e.Seq, part)] > 0:
			told++
		case !waits[e.Seq]:
			note("event %d (%s) was not told, and does not wait to be", e.Seq, e.Type)
		}
	}
	if told != len(s.service.told) {
		note("%d messages with ids of their own were told of %d events: an id has changed", len(s.service.told), told)
	}
}
