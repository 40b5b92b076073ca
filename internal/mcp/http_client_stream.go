package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/retry"
)

// How long to wait before a stream that ended is continued, if the server does not say. The wait is
// doubled each time that nothing came.
const (
	clientFirstDelay = time.Second
	clientLastDelay  = 30 * time.Second
)

// clientListenWait is how long Connect waits for the stream of messages that belong to no call.
// Messages that the server sends earlier may be lost. Not every server answers the request for the
// stream before it has something to send.
const clientListenWait = 500 * time.Millisecond

// clientDelay is how long to wait after this many streams on which nothing came.
func clientDelay(fruitless int) time.Duration {
	return retry.Backoff(clientFirstDelay, clientLastDelay, fruitless)
}

// stream reads the stream of a call until its answer is there. If a stream of Legacy ends earlier
// and its events bear ids, it is resumed: the server may have closed it on purpose and go on later
// (SEP-1699).
func (l *httpLink) stream(ctx context.Context, p *clientCall, body io.ReadCloser) (rest io.ReadCloser, err error) {
	events := newClientEvents(l.c.o.MaxMessage)
	for fruitless := 0; ; fruitless++ {
		n := 0
		err := l.events(events, body, func(data []byte) bool {
			n++
			l.c.receiver.receive(p, data)
			return !p.answered()
		})
		if p.answered() {
			return body, nil
		}
		body.Close()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errClientTooLong):
			return nil, err
		case l.c.era == Modern || events.id == "":
			return nil, clientGone("the stream of the answer has ended before it: %w", err)
		}
		if n > 0 {
			fruitless = 0
		}
		delay := events.retry
		if delay < 0 {
			delay = 0 // it may just have been cut
			if fruitless > 0 {
				delay = clientDelay(fruitless - 1)
			}
		}
		if err := l.c.o.wait(ctx, delay); err != nil {
			return nil, err
		}
		if body, err = l.get(ctx, events.id); err != nil {
			return nil, clientGone("the stream of the answer was cut and cannot be resumed: %w", err)
		}
	}
}

// events handles the messages on a stream until it ends or no more are wanted, which is no error.
func (l *httpLink) events(s *clientEvents, body io.Reader, handle func(data []byte) (more bool)) error {
	s.from(body)
	for {
		e, err := s.next()
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case len(e.data) == 0 || e.name != "" && e.name != "message":
			continue
		}
		if !handle(e.data) {
			return nil
		}
	}
}

// get opens a stream. last is the id of the last event that was seen on the stream that it
// continues, empty if there is none.
func (l *httpLink) get(ctx context.Context, last string) (io.ReadCloser, error) {
	req, err := l.request(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return nil, err
	}
	l.addState(req.Header)
	req.Header.Set("Accept", clientSSE)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := l.do(req)
	if err != nil {
		return nil, err
	}
	kind := mediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == clientSSE {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	body, _ := readClientBody(resp.Body, resp.ContentLength, clientDrainBytes) // the part that is there
	if resp.StatusCode/100 == 2 {
		return nil, fmt.Errorf("%w: HTTP %d with content type %q instead of a stream: %s",
			errClientMalformed, resp.StatusCode, kind, clientExcerpt(body))
	}
	return nil, newStatusError(resp, body)
}

// startListening starts to listen, and waits for the stream if that does not take long.
func (l *httpLink) startListening(ctx context.Context) {
	ctx, answered := context.WithTimeout(ctx, clientListenWait)
	if !l.c.life.spawn(func() { l.listen(answered) }) {
		answered()
	}
	<-ctx.Done()
}

// listen reads the stream of messages that belong to no call. It opens the stream again until the
// connection ends or the server does not have one. It calls answered when the server has answered
// for the first time.
func (l *httpLink) listen(answered func()) {
	events := newClientEvents(l.c.o.MaxMessage)
	for fruitless := 0; ; fruitless++ {
		body, err := l.get(l.c.life.ctx, events.id)
		answered()
		if err != nil && !errors.Is(err, ErrClosed) && !mayChange(err) {
			return
		}
		if err == nil {
			err = l.events(events, body, func(data []byte) bool {
				fruitless = -1
				l.c.receiver.receive(nil, data)
				return true
			})
			body.Close()
			if errors.Is(err, errClientTooLong) {
				l.c.receiver.ignored.Add(1)
			}
		}
		delay := events.retry
		if delay < 0 {
			delay = clientDelay(max(fruitless, 0))
		}
		if l.c.o.wait(l.c.life.ctx, delay) != nil {
			return
		}
	}
}

// mayChange reports whether an error is a status that may be another the next time. There is a
// conflict while the server has not noticed that the stream of the session's earlier owner has
// ended.
func mayChange(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && retry.Temporary(status.Status)
}
