package serve

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/sse"
	"github.com/evalrun/evalrun/schemas"
)

// eventsAPI serves /v1/runs/{runId}/events: long polls, and streams of server-sent events for
// clients that accept these.
type eventsAPI struct {
	service *service.Service
	// draining is closed when no request may wait any more.
	draining <-chan struct{}
	streams  *sse.Slots
}

// eventTypes are the types that a client may ask for.
var eventTypes = []string{string(schemas.EventRunCreated), string(schemas.EventRolloutStarted),
	string(schemas.EventRolloutSuspended), string(schemas.EventTriggerDelivered), string(schemas.EventQuestionAsked),
	string(schemas.EventRolloutResumed), string(schemas.EventRolloutRetried), string(schemas.EventRolloutScoring),
	string(schemas.EventRolloutEvaluated), string(schemas.EventRolloutFinished), string(schemas.EventRunFinished),
	string(schemas.EventRunRescored)}

// list answers with the events after a number, and waits for one if there is none.
func (a *eventsAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "after", "types", "wait", "limit")
	after, limit := q.number("after", 0, 0, math.MaxInt64), int(q.number("limit", pageSize, 1, maxPage))
	wait := time.Duration(q.number("wait", 0, 0, int64(maxWait/time.Second))) * time.Second
	types := a.types(q)
	if q.err != nil {
		return q.err
	}
	events, err := a.service.Read(r.Context(), r.PathValue("runId"), after)
	if err != nil {
		return err
	}
	defer events.Close()
	if accepts(r, "text/event-stream") {
		return a.stream(w, r, events, after, types)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		part, err := events.After(r.Context(), after, limit, types)
		if err != nil {
			return err
		}
		if len(part.Events) > 0 || part.Final || part.Changed != nil && !a.await(ctx, part.Changed) {
			if revoked(r.Context()) {
				return access.ErrInvalid
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(encode(part)) // a client that has gone gets nothing
			return nil
		}
		after = part.Next
	}
}

// encode joins a part of the events of a run, which are encoded already: thousands may wait for the
// same one. next is the value of after for the next request. Everything up to it was looked at,
// including events of other types.
func encode(part service.Events) []byte {
	out := []byte(`{"events":[`)
	for i, e := range part.Events {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.JSON...)
	}
	return fmt.Appendf(out, `],"next":%d,"final":%t}`+"\n", part.Next, part.Final)
}

// await waits for a change, and reports whether there was one in time.
func (a *eventsAPI) await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-ctx.Done():
	case <-a.draining:
	}
	return false
}

func (a *eventsAPI) types(q *query) (out []schemas.EventType) {
	text := q.text("types")
	if text == "" {
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		if !slices.Contains(eventTypes, one) {
			q.fail("types: no event has the type %s%s", quoted(one), input.Suggest(one, eventTypes))
		}
		out = append(out, schemas.EventType(one))
	}
	return out
}

// accepts reports whether a request names a media type in its header Accept.
func accepts(r *http.Request, kind string) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			if name, _, _ := strings.Cut(one, ";"); strings.EqualFold(strings.TrimSpace(name), kind) {
				return true
			}
		}
	}
	return false
}
