package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// serveGet serves the standalone stream of a session, or the rest of a stream that was cut. A
// second connection replaces the first.
func (x *HTTPHandler) serveGet(w http.ResponseWriter, r *http.Request, s *Session) {
	st, after, ok := s.resume(r.Header.Get(headerLastEvent))
	if !ok { // not 404, which would say that the session is gone
		http.Error(w, "the stream of the header "+headerLastEvent+" cannot be resumed", http.StatusBadRequest)
		return
	}
	connection := st.attach()
	defer st.detach(connection)
	x.writeEvents(w, r, st, connection, after)
}

// writeEvents writes the messages of a stream as events, until it is complete or its session or the
// connection ends. It reports whether the stream is complete.
func (x *HTTPHandler) writeEvents(w http.ResponseWriter,
	r *http.Request, st *stream, connection int, after int64) bool {
	s := st.session
	control := http.NewResponseController(w)
	cut := make(chan struct{})
	stop := context.AfterFunc(s.ctx, func() {
		defer close(cut)
		// Only a test's writer has no deadlines, and nobody waits for it in vain.
		_ = control.SetWriteDeadline(time.Now().Add(lingering))
	})
	defer func() {
		if !stop() {
			<-cut
			_ = control.SetWriteDeadline(time.Time{}) // another request may come on the connection
		}
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	// Something must follow the header at once, or proxies keep it (golang/go#31125).
	first := ": ok\n\n"
	if resumable := st.makeResumable(); resumable && after == 0 &&
		s.Version() >= Version2025_11_25 && r.Method == http.MethodPost {
		// With this event a client can resume before it has seen another. It has no name, since
		// some clients warn of names that they do not know. Clients of older versions would take
		// its empty data for a message.
		first = fmt.Sprintf("id: %s\nretry: 1000\ndata: \n\n", st.eventID(0))
	}
	if _, err := w.Write([]byte(first)); err != nil || flush(control) != nil {
		return false
	}
	silence := time.NewTicker(x.keepAlive)
	defer silence.Stop()
	for {
		state := st.stateFor(connection, after)
		for _, e := range state.events {
			if writeEvent(w, st, e) != nil {
				return false
			}
			after = e.seq
		}
		if len(state.events) > 0 {
			if flush(control) != nil {
				return false
			}
			st.wrote(connection, after)
			silence.Reset(x.keepAlive)
		}
		switch {
		case state.replaced:
			return false
		case state.complete:
			return true
		}
		ended := s.ctx.Done()
		if r.Method == http.MethodPost {
			ended = nil // the answer is still to come
		}
		select {
		case <-state.wake:
		case <-silence.C:
			if _, err := w.Write([]byte(": still here\n\n")); err != nil || flush(control) != nil {
				return false
			}
		case <-ended:
			return false
		case <-r.Context().Done():
			return false
		}
	}
}

// flush flushes. If a writer cannot, its wrapper is at fault, and that is no reason to send
// nothing.
func flush(control *http.ResponseController) error {
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// writeEvent writes one event.
func writeEvent(w http.ResponseWriter, st *stream, e *event) error {
	var b bytes.Buffer
	if st.id != "" {
		b.WriteString("id: " + st.eventID(e.seq) + "\n")
	}
	b.WriteString("event: message\ndata: ")
	for _, part := range [][]byte{b.Bytes(), jsonrpc.OnOneLine(e.data), []byte("\n\n")} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
