package mcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// clientMaxRetry is the longest delay that a server can ask for.
const clientMaxRetry = time.Hour

// clientEvent is one event of an SSE stream
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type clientEvent struct {
	name string
	data []byte // nil if there are only the fields below
}

// clientEvents reads an SSE stream. It keeps its position over the streams that continue the first
// one.
type clientEvents struct {
	max   int // most bytes of an event
	id    string
	retry time.Duration // how long to wait before the stream is continued; -1 if the server did not say

	r      *bufio.Reader
	skipLF bool // a CR has just ended a line
}

func newClientEvents(limit int) *clientEvents { return &clientEvents{max: limit, retry: -1} }

// from starts to read a stream.
func (s *clientEvents) from(r io.Reader) {
	s.r, s.skipLF = bufio.NewReaderSize(r, 16<<10), false
	if mark, _ := s.r.Peek(3); string(mark) == "\xEF\xBB\xBF" {
		_, _ = s.r.Discard(3) // they are buffered
	}
}

// next returns the next event that has data. An event that the end of the stream has cut does not
// count. The caller owns the data.
func (s *clientEvents) next() (clientEvent, error) {
	var e clientEvent
	id := s.id
	for {
		line, err := s.line(s.max - len(e.data))
		if err != nil {
			return clientEvent{}, err
		}
		if len(line) == 0 {
			s.id = id
			if e.data != nil {
				return e, nil
			}
			e = clientEvent{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "event":
			e.name = string(value)
		case "data":
			if e.data == nil {
				e.data = value // the line is not used again
			} else {
				e.data = append(append(e.data, '\n'), value...)
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 63); err == nil {
				s.retry = time.Duration(min(ms, uint64(clientMaxRetry/time.Millisecond))) * time.Millisecond
			}
		}
	}
}

// line returns the next line, which ends with LF, CR LF or CR.
func (s *clientEvents) line(limit int) ([]byte, error) {
	line := []byte{}
	for {
		if _, err := s.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.skipLF && chunk[0] == '\n' {
			_, _ = s.r.Discard(1)
			s.skipLF = false
			continue
		}
		s.skipLF = false
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			line = append(line, chunk...)
			_, _ = s.r.Discard(len(chunk))
		} else {
			line = append(line, chunk[:end]...)
			s.skipLF = chunk[end] == '\r'
			_, _ = s.r.Discard(end + 1)
		}
		if len(line) > limit+len("data: ") {
			return nil, fmt.Errorf("%w: more than %d bytes", errClientTooLong, s.max)
		}
		if end >= 0 {
			return line, nil
		}
	}
}
