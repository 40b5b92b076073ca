package mcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// historySize is how many bytes a legacy session keeps of what was sent on its streams, or waits
// for a client to come back.
const historySize = 1 << 20

// sessionStreams are the event streams of an HTTP session. The session's mu guards them and
// everything in them.
type sessionStreams struct {
	// nonce is the first part of the ids of events. It distinguishes them from those of the same
	// session in another process.
	nonce  string
	byID   map[string]*stream
	lastID int
	// history has the kept events of all streams, the oldest first. kept is its length in bytes.
	history []*event
	kept    int
	// maxAnswers is how many bytes may be kept in order not to lose an answer that has not been
	// written.
	maxAnswers int
	// standalone is the stream that a client opens with GET.
	standalone *stream
}

// event is a message on a stream.
type event struct {
	stream *stream
	seq    int64
	kind   messageKind
	data   []byte
}

// stream has the messages that are sent in answer to a POST, or on the standalone stream of a
// session. It keeps them, and one connection of HTTP at a time writes those that were not written.
// Another connection may go on where one was cut. So no sender waits for the client.
type stream struct {
	session *Session
	// id begins the ids of events; empty if a stream that is cut cannot be resumed.
	id string
	// open is how many answers are still to come. On the standalone stream it never becomes 0.
	open int
	// silent says that the client accepts answers only.
	silent bool
	events []*event
	seq    int64 // of the last event
	// written is the number of the last event that was written to a connection; queued is the
	// length in bytes of those after it.
	written int64
	queued  int
	// connection counts the connections. attached says that the last one is still there, or will be. A
	// stream that is over takes nothing.
	connection int
	attached   bool
	over       bool
	// noted is called with messages that are no answers; nil if nobody wants them. It must not block,
	// and not use the session.
	noted func()
	// wake is closed when something has changed; nil if nobody waits for that.
	wake chan struct{}
}

func newStream(s *Session, open int) *stream {
	return &stream{session: s, open: open}
}

// openStreams gives a session resumable streams, and a standalone one.
func (s *Session) openStreams(nonce string, maxAnswers int) {
	s.streams.nonce, s.streams.maxAnswers, s.streams.byID = nonce, maxAnswers, map[string]*stream{}
	s.streams.standalone = newStream(s, 1)
	s.streams.standalone.id = nonce + "-0"
	s.streams.byID[s.streams.standalone.id] = s.streams.standalone
	s.out = s.streams.standalone
}

// put adds a message.
func (st *stream) put(k messageKind, m *message) error {
	text := m.Encode()
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	defer st.changed()
	if k == kindAnswer {
		st.open--
	}
	switch {
	case st.over:
		return errNoStream
	case st.silent && k == kindNote:
		return nil
	case st.silent && k == kindAsk:
		return errNoStream
	case k != kindAnswer && st.attached && st.queued >= maxQueue:
		if s.id == "" {
			s.cancel(errFull) // as if the client had gone, which Modern takes for cancelling
		}
		return errFull
	}
	st.seq++
	e := &event{st, st.seq, k, text}
	st.events = append(st.events, e)
	st.queued += len(text)
	s.streams.history = append(s.streams.history, e)
	s.streams.kept += len(text)
	s.trim()
	if k != kindAnswer && st.noted != nil {
		st.noted()
	}
	return nil
}

// answers returns the messages, if there were only answers.
func (st *stream) answers() (answers [][]byte) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	for _, e := range st.events {
		answers = append(answers, e.data)
	}
	return answers
}

// changed tells the connection of the stream. The caller holds the session's mu.
func (st *stream) changed() {
	if st.wake != nil {
		close(st.wake)
		st.wake = nil
	}
}

// trim drops the oldest events if there are too many: first those that were written and
// notifications, then answers that nobody has come for. It never drops events that a connection has
// still to write. It makes room for some more at once, as it has to look at them all. The caller
// holds mu.
func (s *Session) trim() {
	h := &s.streams
	drop := func(limit int, unreadAnswers bool) {
		if h.kept <= limit {
			return
		}
		limit -= limit / 4
		last := len(h.history) - 1
		index := -1
		h.history = slices.DeleteFunc(h.history, func(e *event) bool {
			index++
			unread := e.seq > e.stream.written
			if h.kept <= limit || index == last || unread && (e.stream.attached || e.kind == kindAnswer && !unreadAnswers) {
				return false
			}
			e.forget()
			return true
		})
	}
	drop(historySize, false)
	drop(h.maxAnswers, true)
}

// forget removes an event from its stream, which goes with the last one. The caller holds the
// session's mu, and removes the event from the history.
func (e *event) forget() {
	st := e.stream
	st.session.streams.kept -= len(e.data)
	if e.seq > st.written {
		st.queued -= len(e.data)
	}
	if i := slices.Index(st.events, e); i == 0 {
		st.events = st.events[1:]
	} else {
		st.events = slices.Delete(st.events, i, i+1)
	}
	st.dropIfUseless()
}

// dropIfUseless forgets a stream that has nothing left and will get nothing. The caller holds the
// session's mu.
func (st *stream) dropIfUseless() {
	if len(st.events) == 0 && st.open <= 0 && !st.attached {
		delete(st.session.streams.byID, st.id)
	}
}

// attach makes the caller the only connection of the stream; any other ends. It returns the number
// of the connection.
func (st *stream) attach() int {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.connection++
	st.attached = true
	st.changed()
	return st.connection
}

// detach ends a connection. A stream that cannot be resumed is over with it.
func (st *stream) detach(connection int) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if connection != st.connection {
		return
	}
	st.attached = false
	if st.id == "" {
		st.over = true
		st.forgetTo(st.seq)
	}
	st.dropIfUseless()
	s.trim()
}

// forgetTo forgets the events up to a number. The caller holds the session's mu.
func (st *stream) forgetTo(seq int64) {
	s := st.session
	for len(st.events) > 0 && st.events[0].seq <= seq {
		s.streams.history = slices.DeleteFunc(s.streams.history, func(e *event) bool { return e == st.events[0] })
		st.events[0].forget()
	}
}

// makeResumable gives a stream an id, if its session is known to the client, and reports whether it
// has one.
func (st *stream) makeResumable() bool {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams.byID != nil && s.version != "" && st.id == "" {
		s.streams.lastID++
		st.id = fmt.Sprintf("%s-%d", s.streams.nonce, s.streams.lastID)
		s.streams.byID[st.id] = st
	}
	return st.id != ""
}

// streamState is a stream as a connection sees it.
type streamState struct {
	events   []*event // after those that it has written
	complete bool     // nothing will come after them
	replaced bool     // by another connection
	wake     <-chan struct{}
}

// stateFor is the stream as seen by a connection that has written up to a number.
func (st *stream) stateFor(connection int, after int64) streamState {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	if st.wake == nil {
		st.wake = make(chan struct{})
	}
	state := streamState{complete: st.open <= 0, replaced: connection != st.connection, wake: st.wake}
	if first := slices.IndexFunc(st.events, func(e *event) bool { return e.seq > after }); first >= 0 {
		state.events = slices.Clone(st.events[first:])
	}
	return state
}

// wrote records what a connection has written.
func (st *stream) wrote(connection int, seq int64) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if connection != st.connection || seq <= st.written {
		return
	}
	for _, e := range st.events {
		if e.seq > st.written && e.seq <= seq {
			st.queued -= len(e.data)
		}
	}
	st.written = seq
	if st.id == "" {
		st.forgetTo(seq)
	}
}

// eventID is the id of an event, with which a client resumes after it.
func (st *stream) eventID(seq int64) string { return fmt.Sprintf("%s_%d", st.id, seq) }

// resume finds the stream of the last event that a client has seen, and the number of that event.
// Without an event, or with one of the standalone stream in another process, it returns the
// standalone stream, after what was written to it.
func (s *Session) resume(lastEvent string) (st *stream, after int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	standalone := s.streams.standalone
	if lastEvent == "" {
		return standalone, standalone.written, true
	}
	id, number, _ := strings.Cut(lastEvent, "_")
	after, err := strconv.ParseInt(number, 10, 64)
	switch st = s.streams.byID[id]; {
	case err != nil:
		return nil, 0, false
	case st != nil:
		return st, min(after, st.seq), true
	case strings.HasSuffix(id, "-0"):
		return standalone, standalone.written, true
	}
	return nil, 0, false
}
