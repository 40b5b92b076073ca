package redact

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// levels are how often the escapes of a text are undone.
const levels = 3

// texts are how many there are then: the text itself, and of each one what remains of it without
// the escapes of JSON and without those of URLs. The children of text i are 2i+1 and 2i+2.
const texts = 1<<(levels+1) - 1

// scanner finds secrets in a text that comes byte by byte: in the text itself, in what it says
// without its escapes, and so on, so that it does not matter who has escaped what how often. Places
// count from the beginning of the text.
type scanner struct {
	m *matcher
	// found is told where a secret begins and ends.
	found func(from, to int, n *node)
	pos   int
	// awake are the texts, a bit each, that differ from their parents: the others need not be
	// looked at.
	awake uint32
	text  [texts]text
}

// text is one of the texts.
type text struct {
	at int32
	// starts are where the last bytes begin in the text itself, at least those that could become a
	// secret. The first text has none.
	starts []int
	// escape is the one that has begun in the parent.
	escape escape
}

func newScanner(m *matcher, found func(from, to int, n *node)) scanner {
	return scanner{m: m, found: found, awake: 1}
}

// next looks at one more byte.
func (s *scanner) next(b byte) {
	s.pos++
	if s.awake == 1 && b != '\\' && b != '%' { // most bytes of most texts
		s.text[0].at = s.m.step(s.text[0].at, b)
		if n := &s.m.nodes[s.text[0].at]; n.match > 0 {
			s.found(s.pos-int(n.match), s.pos, n)
		}
		return
	}
	s.feed(0, symbol{b, s.pos - 1, s.pos})
	for rest := s.awake &^ 1; rest != 0; {
		i := bits.Len32(rest) - 1 // children before their parents
		rest &^= 1 << i
		if t := &s.text[i]; t.at == 0 && s.text[(i-1)/2].at == 0 && t.escape.n == 0 && s.awake>>(2*i+1)&3 == 0 {
			s.awake &^= 1 << i
		}
	}
}

// idle reports whether nothing has begun that could be a secret.
func (s *scanner) idle() bool { return s.awake == 1 && s.text[0].at == 0 }

// feed looks at a byte of a text, and of those that are made of it.
func (s *scanner) feed(i int, b symbol) {
	t := &s.text[i]
	for child := 2*i + 1; child <= 2*i+2 && child < texts; child++ {
		if s.awake>>child&1 == 0 && b.b == lead(child) {
			s.wake(child, b.from)
		}
	}
	t.at = s.m.step(t.at, b.b)
	n := &s.m.nodes[t.at]
	if i > 0 {
		if len(t.starts) >= 2*int(n.depth)+64 {
			t.starts = t.starts[:copy(t.starts, t.starts[len(t.starts)-int(n.depth):])]
		}
		t.starts = append(t.starts, b.from)
	}
	if n.match > 0 {
		s.found(s.start(i, n.match, b.to), b.to, n)
	}
	for child := 2*i + 1; child <= 2*i+2 && child < texts; child++ {
		if s.awake>>child&1 == 1 {
			s.text[child].escape.push(b, lead(child), func(b symbol) { s.feed(child, b) })
		}
	}
}

// lead is the byte with which the escapes begin that are undone in a text.
func lead(i int) byte {
	if i%2 == 1 {
		return '\\'
	}
	return '%'
}

// wake begins a text that differs from its parent from now on. Until now what is made of it was
// what is made of its parent.
func (s *scanner) wake(i, pos int) { s.copy(i, (i-1)/2, pos) }

// copy makes a text, and those that are made of it, what another one is before a place.
func (s *scanner) copy(to, from, pos int) {
	t, f := &s.text[to], &s.text[from]
	t.at, t.starts = f.at, t.starts[:0]
	depth := int(s.m.nodes[f.at].depth)
	for j := range depth {
		if from == 0 {
			t.starts = append(t.starts, pos-depth+j)
		} else {
			t.starts = append(t.starts, f.starts[len(f.starts)-depth+j])
		}
	}
	for kind := 1; kind <= 2 && 2*to+kind < texts; kind++ {
		if s.awake>>(2*from+kind)&1 == 1 {
			s.copy(2*to+kind, 2*from+kind, pos)
			s.text[2*to+kind].escape = s.text[2*from+kind].escape
		}
	}
	t.escape.n = 0
	s.awake |= 1 << to
}

// start is where the last n bytes of a text begin, of which the last one ends at to.
func (s *scanner) start(i int, n int32, to int) int {
	if i == 0 {
		return to - int(n)
	}
	starts := s.text[i].starts
	return starts[len(starts)-int(n)]
}

// open is where that begins which could become a secret; the end of the text if nothing could.
func (s *scanner) open() int {
	from := s.pos
	for rest := s.awake; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		t := &s.text[i]
		if depth := s.m.nodes[t.at].depth; depth > 0 {
			from = min(from, s.start(i, depth, s.pos))
		}
		if t.escape.n > 0 {
			from = min(from, t.escape.pending[0].from)
		}
	}
	return from
}

// symbol is a byte of a text, and where it begins and ends in the first one.
type symbol struct {
	b        byte
	from, to int
}

// escape undoes the escapes of JSON, which begin with a backslash, or those of URLs, which begin
// with a percent sign.
type escape struct {
	pending [12]symbol
	n       int
	// text is what a complete escape stands for.
	text [utf8.UTFMax]byte
}

// push takes one more byte and gives out what is certain.
func (e *escape) push(b symbol, lead byte, emit func(symbol)) {
	if e.n == 0 && b.b != lead {
		emit(b)
		return
	}
	e.pending[e.n] = b
	e.n++
	size, state := e.decode()
	switch state {
	case complete:
		text, from := e.text, e.pending[0].from
		e.n = 0
		for _, c := range text[:size] {
			emit(symbol{c, from, b.to})
		}
	case none: // the first byte stands for itself, and any other can begin an escape
		held, n := e.pending, e.n
		e.n = 0
		emit(held[0])
		for _, b := range held[1:n] {
			e.push(b, lead, emit)
		}
	}
}

type state int

const (
	unfinished state = iota
	complete
	none
)

// decode tells what the pending bytes stand for, and puts it into text.
func (e *escape) decode() (size int, s state) {
	if e.n == 1 {
		return 0, unfinished
	}
	if e.pending[0].b == '%' {
		v, state := e.hex(1, 2)
		e.text[0] = byte(v)
		return 1, state
	}
	if c := e.pending[1].b; c != 'u' {
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return 0, none
		}
		e.text[0] = "\"\\/\b\f\n\r\t"[i]
		return 1, complete
	}
	first, s := e.hex(2, 4)
	if s != complete {
		return 0, s
	}
	r := rune(first)
	if utf16.IsSurrogate(r) {
		if e.n > 6 && e.pending[6].b != '\\' || e.n > 7 && e.pending[7].b != 'u' {
			return 0, none
		}
		second, s := e.hex(8, 4)
		if s != complete {
			return 0, s
		}
		if r = utf16.DecodeRune(r, rune(second)); r == utf8.RuneError {
			return 0, none
		}
	}
	return utf8.EncodeRune(e.text[:], r), complete
}

// hex reads a number of so many digits at a place.
func (e *escape) hex(at, digits int) (v int, s state) {
	for i := at; i < min(at+digits, e.n); i++ {
		c := e.pending[i].b
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | int(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			v = v<<4 | int(c|0x20-'a'+10)
		default:
			return 0, none
		}
	}
	if e.n < at+digits {
		return 0, unfinished
	}
	return v, complete
}
