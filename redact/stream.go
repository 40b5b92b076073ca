package redact

import (
	"io"
	"sync"
)

// stream redacts a text that comes in pieces. Secrets that overlap become one gap, which bears the name of the longest.
type stream struct {
	m  *matcher
	w  io.Writer
	at int32
	// held is the text that is not yet written because its end could be the beginning of a secret. gaps are the secrets in it, apart
	// from each other and in order; their places count from the beginning of held.
	held []byte
	gaps []gap
	// out is collected so that one write causes at most one.
	out []byte
	err error
}

type gap struct {
	from, to int
	// longest is the length of the longest secret in the gap.
	longest, marker int32
}

func (s *stream) write(p []byte) error {
	if s.plain(p) == len(p) {
		s.send(p)
		return s.err
	}
	for len(p) > 0 {
		if n := s.plain(p); n > 0 {
			s.out = append(s.out, p[:n]...)
			p = p[n:]
			continue
		}
		s.held = append(s.held, p[0])
		s.at = s.m.step(s.at, p[0])
		if match := s.m.nodes[s.at].match; match > 0 {
			s.cover(len(s.held)-int(match), match, s.m.nodes[s.at].marker)
		}
		p = p[1:]
		if depth := int(s.m.nodes[s.at].depth); depth == 0 || len(p) == 0 || len(s.held) >= 2*depth+64 {
			s.release(len(s.held) - depth)
		}
	}
	s.send(s.out)
	s.out = s.out[:0]
	return s.err
}

// plain is how many bytes at the beginning of p can be passed on at once: nothing is held, and none of them begins a secret.
func (s *stream) plain(p []byte) int {
	if s.at != 0 || len(s.held) > 0 {
		return 0
	}
	for i, b := range p {
		if s.m.first[b] != 0 {
			return i
		}
	}
	return len(p)
}

// cover records a secret that ends where held ends now, and joins it with those that it overlaps.
func (s *stream) cover(from int, length, marker int32) {
	g := gap{from: from, to: len(s.held), longest: length, marker: marker}
	for len(s.gaps) > 0 {
		last := s.gaps[len(s.gaps)-1]
		if last.to <= g.from {
			break
		}
		g.from = min(g.from, last.from)
		if last.longest >= g.longest {
			g.longest, g.marker = last.longest, last.marker
		}
		s.gaps = s.gaps[:len(s.gaps)-1]
	}
	s.gaps = append(s.gaps, g)
}

// release gives out what lies before limit: no secret that is still to be found begins there.
func (s *stream) release(limit int) {
	done, used := 0, 0
	for _, g := range s.gaps {
		if g.to > limit {
			limit = min(limit, g.from) // it may yet grow
			break
		}
		s.out = append(append(s.out, s.held[done:g.from]...), s.m.markers[g.marker]...)
		done = g.to
		used++
	}
	if done < limit {
		s.out = append(s.out, s.held[done:limit]...)
		done = limit
	}
	if done == 0 {
		return
	}
	s.held = s.held[:copy(s.held, s.held[done:])]
	s.gaps = s.gaps[:copy(s.gaps, s.gaps[used:])]
	for i := range s.gaps {
		s.gaps[i].from -= done
		s.gaps[i].to -= done
	}
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
	s.at = 0
	s.release(len(s.held))
	s.send(s.out)
	s.out = s.out[:0]
	return s.err
}

// writer is a stream as an io.WriteCloser. After an error it writes nothing more.
type writer struct {
	mu sync.Mutex
	stream
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
	return w.close()
}
