package redact

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// stream redacts a text that comes in pieces. Secrets that overlap become one gap, with the
// name of the longest.
type stream struct {
	scanner
	w io.Writer
	// held is the text that is not yet written because its end could be the beginning of a secret.
	// gaps are the secrets in it, apart from each other and in order. Their places count from the
	// beginning of the text.
	held []byte
	gaps []gap
	// out collects the output, so that one write causes at most one.
	out []byte
	err error
}

type gap struct {
	from, to int
	// longest is the length of the longest secret in the gap.
	longest, marker int32
}

func newStream(m *matcher, w io.Writer) *stream {
	s := &stream{w: w}
	s.scanner = newScanner(m, s.cover)
	return s
}

func (s *stream) write(p []byte) error {
	if s.plainPrefix(p) == len(p) {
		s.pos += len(p)
		s.send(p)
		return s.err
	}
	for len(p) > 0 {
		if n := s.plainPrefix(p); n > 0 {
			s.out = append(s.out, p[:n]...)
			s.pos += n
			p = p[n:]
			continue
		}
		s.held = append(s.held, p[0])
		s.next(p[0])
		p = p[1:]
		if s.idle() || len(p) == 0 {
			s.release(s.open())
		} else if len(s.held) >= 64 {
			if open := s.open(); len(s.held) >= 2*(s.pos-open)+64 {
				s.release(open)
			}
		}
	}
	s.send(s.out)
	s.out = s.out[:0]
	return s.err
}

// plainPrefix counts the bytes at the beginning of p that can be written at once: nothing is held,
// and none of them begins a secret or an escape.
func (s *stream) plainPrefix(p []byte) int {
	if len(s.held) > 0 || !s.idle() {
		return 0
	}
	return s.m.skip(p)
}

// cover records a secret and joins it with those that it overlaps. An escaped secret is found
// when its last escape is complete, and so it can end before others that are known.
func (s *stream) cover(from, to int, n *node) {
	g := gap{from: from, to: to, longest: n.match, marker: n.marker}
	at := len(s.gaps)
	for at > 0 && s.gaps[at-1].to > g.from {
		at--
	}
	end := at
	for end < len(s.gaps) && s.gaps[end].from < g.to {
		old := s.gaps[end]
		g.from, g.to = min(g.from, old.from), max(g.to, old.to)
		if old.longest >= g.longest {
			g.longest, g.marker = old.longest, old.marker
		}
		end++
	}
	s.gaps = slices.Replace(s.gaps, at, end, g)
}

// release writes the text before limit to out: no secret that is still to be found begins there.
func (s *stream) release(limit int) {
	begin := s.pos - len(s.held)
	done, used := begin, 0
	for _, g := range s.gaps {
		if g.to > limit {
			limit = min(limit, g.from) // the gap may still grow
			break
		}
		s.out = append(append(s.out, s.held[done-begin:g.from-begin]...), s.m.markers[g.marker]...)
		done = g.to
		used++
	}
	if done < limit {
		s.out = append(s.out, s.held[done-begin:limit-begin]...)
		done = limit
	}
	if done == begin {
		return
	}
	s.held = s.held[:copy(s.held, s.held[done-begin:])]
	s.gaps = s.gaps[:copy(s.gaps, s.gaps[used:])]
}

func (s *stream) send(p []byte) {
	if len(p) == 0 || s.err != nil {
		return
	}
	n, err := s.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	s.err = err
}

func (s *stream) close() error {
	s.release(s.pos)
	s.awake, s.text = 1, [texts]text{}
	s.send(s.out)
	s.out = s.out[:0]
	return s.err
}

// writer is a stream as an io.WriteCloser. After an error it writes nothing more.
type writer struct {
	mu sync.Mutex
	*stream
	below io.Closer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.close(), w.below.Close())
}
