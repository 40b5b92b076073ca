package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/sse"
)

// maxStreams is the most browsers that follow runs at once, and the most that follow the inbox.
// Other browsers can still read the pages.
const maxStreams = 256

// retry is how long a browser waits before it comes again.
const retry = 2 * time.Second

var (
	errManyStreams = &pageError{http.StatusServiceUnavailable,
		fmt.Sprintf("%d browsers are told of changes, which is the most; load the page again to see what is new", maxStreams)}
	errManyInboxes = &pageError{http.StatusServiceUnavailable,
		"too many browsers look at the inbox; load the page again to see what is new"}
)

// opener opens a stream for a request: on the answer to it, or on a connection that several share.
// The error many is returned if there are too many streams.
type opener func(slots *sse.Slots, many error) (*sse.Stream, error)

// streams are the streams that tell browsers of changes.
type streams struct {
	draining <-chan struct{}
	// runs are the streams for changes of runs, inboxes those for changes of the inbox.
	runs, inboxes sse.Slots
}

// answerWith makes a stream the answer to a request.
func (q *streams) answerWith(w http.ResponseWriter) opener {
	open := q.openOn(sse.Answer(w), "")
	return func(slots *sse.Slots, many error) (*sse.Stream, error) {
		s, err := open(slots, many)
		if err == nil {
			_ = s.Retry(retry) // a later write notices that a browser is gone
		}
		return s, err
	}
}

// openOn opens streams on a connection. prefix tells the events of one stream from those of the
// others.
func (q *streams) openOn(c *sse.Connection, prefix string) opener {
	return func(slots *sse.Slots, many error) (*sse.Stream, error) {
		s, err := c.Open(slots, prefix, q.draining)
		if errors.Is(err, sse.ErrTooMany) {
			return nil, many
		}
		return s, err
	}
}

// tell sends an event with a number.
func tell(s *sse.Stream, id int64, name string, data []byte) error {
	return s.Send(sse.Event{ID: strconv.FormatInt(id, 10), Name: name, Data: data})
}
