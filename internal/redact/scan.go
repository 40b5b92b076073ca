package redact

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// levels is how often the escapes of a text are undone one by one.
const levels = 3

// texts counts the resulting texts: the text itself, and for each one the text without the escapes
// of JSON and the text without those of URLs. After these come the texts without any escape of
// JSON, however often it was escaped: they are made of the text itself, and of that text after
// undoing the escapes of URLs once and twice.
const (
	single = 1<<(levels+1) - 1
	texts  = single + levels
)

// relation says how a text is made from another one.
type relation struct {
	parent int
	how    undoing
	// children are the texts that are made from this one, by how; 0 means none.
	children [3]int
}

// undoing says which escapes are undone to make a text from another one.
type undoing int

const (
	inJSON    undoing = iota // one level of JSON
	inURL                    // one level of a URL
	inAllJSON                // every level of JSON
)

// lead is the first byte of the escapes that are undone.
func (u undoing) lead() byte {
	if u == inURL {
		return '%'
	}
	return '\\'
}

var relations = relate()

func relate() (r [texts]relation) {
	add := func(parent, child int, how undoing) {
		r[parent].children[how] = child
		r[child].parent, r[child].how = parent, how
	}
	for i := range single / 2 {
		add(i, 2*i+1, inJSON)
		add(i, 2*i+2, inURL)
	}
	for i, parent := 0, 0; i < levels; i, parent = i+1, r[parent].children[inURL] {
		add(parent, single+i, inAllJSON)
	}
	return r
}

// scanner finds secrets in a text that comes byte by byte: in the text itself, in the text
// without its escapes, and so on, so that it does not matter who escaped it, or how often. Places
// count from the beginning of the text.
type scanner struct {
	m *matcher
	// found is called with the beginning and the end of each secret.
	found func(from, to int, n *node)
	pos   int
	// awake has a bit for each text that differs from its parent. The scanner skips
	// the others.
	awake uint32
	text  [texts]text
}

// text is one of the texts.
type text struct {
	at int32
	// starts are the places in the first text at which the last bytes begin, at least of those that
	// could become a secret. The first text has none.
	starts []int
	// escape is the escape that has begun in the parent.
	escape escape
}

func newScanner(m *matcher, found func(from, to int, n *node)) scanner {
	return scanner{m: m, found: found, awake: 1}
}

// next reads one more byte.
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
		r := &relations[i]
		if t := &s.text[i]; t.at == 0 && s.text[r.parent].at == 0 && t.escape.n == 0 && !s.anyAwake(r.children) {
			s.awake &^= 1 << i
		}
	}
}

func (s *scanner) isAwake(i int) bool { return s.awake>>i&1 == 1 }

func (s *scanner) anyAwake(children [3]int) bool {
	for _, child := range children {
		if child > 0 && s.isAwake(child) {
			return true
		}
	}
	return false
}

// idle reports whether nothing that could be a secret has begun.
func (s *scanner) idle() bool { return s.awake == 1 && s.text[0].at == 0 }

// feed adds a byte to a text, and to the texts that are made from it.
func (s *scanner) feed(i int, b symbol) {
	t := &s.text[i]
	children := &relations[i].children
	for how, child := range children {
		if child > 0 && !s.isAwake(child) && b.b == undoing(how).lead() {
			s.copy(child, i, b.from)
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
	for how, child := range children {
		if child > 0 && s.isAwake(child) {
			s.text[child].escape.push(b, undoing(how), func(b symbol) { s.feed(child, b) })
		}
	}
}

// copy makes a text, and those that are made from it, equal to another text before a place. A text
// that begins to differ from its parent starts so: until then its children were those of its
// parent.
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
	for how, child := range relations[to].children {
		if of := relations[from].children[how]; child > 0 && of > 0 && s.isAwake(of) {
			s.copy(child, of, pos)
			s.text[child].escape = s.text[of].escape
		}
	}
	t.escape.n = 0
	s.awake |= 1 << to
}

// start returns the place at which the last n bytes of a text begin. The last byte ends at to.
func (s *scanner) start(i int, n int32, to int) int {
	if i == 0 {
		return to - int(n)
	}
	starts := s.text[i].starts
	return starts[len(starts)-int(n)]
}

// open returns the earliest place at which a possible secret begins, or the end of the text if
// there is none.
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

// symbol is a byte of a text, with the places at which it begins and ends in the first text.
type symbol struct {
	b        byte
	from, to int
}

// escape undoes the escapes of JSON, which begin with a backslash, or those of URLs, which begin
// with a percent sign.
type escape struct {
	pending [12]symbol
	n       int
	// run is the number of backslashes for which the first pending symbol stands. It is more than one
	// only if every level of JSON is undone.
	run int
	// text is the meaning of a complete escape.
	text [utf8.UTFMax]byte
}

// push takes one more byte and emits the bytes that are certain.
func (e *escape) push(b symbol, how undoing, emit func(symbol)) {
	if e.n == 0 && b.b != how.lead() {
		emit(b)
		return
	}
	if how == inAllJSON && b.b == '\\' && e.n > 0 && e.pending[e.n-1].b == '\\' {
		e.pending[e.n-1].to = b.to
		if e.n == 1 {
			e.run++
		}
		return
	}
	e.pending[e.n] = b
	e.n++
	if e.n == 1 {
		e.run = 1
	}
	size, state := e.decode()
	switch state {
	case complete:
		first := e.pending[0]
		e.n = 0
		left := half(e.run)
		for ; size == 1 && left > 0; left = half(left) {
			c, ok := named(e.text[0])
			if !ok {
				break
			}
			e.text[0] = c
		}
		if how == inAllJSON && e.text[0] == '\\' {
			e.pending[0], e.n, e.run = symbol{'\\', first.from, b.to}, 1, left+1
			return
		}
		text := e.text
		if left > 0 {
			emit(first)
		}
		for _, c := range text[:size] {
			emit(symbol{c, first.from, b.to})
		}
	case none: // the first byte is literal, and any other can begin an escape
		held, n := e.pending, e.n
		e.n = 0
		emit(held[0])
		for _, b := range held[1:n] {
			e.push(b, how, emit)
		}
	}
}

// half returns how many of some backslashes before a character remain after undoing the levels of
// which the character is not a part, and the one of which it is.
func half(backslashes int) int {
	return backslashes >> (bits.TrailingZeros(uint(backslashes)) + 1)
}

// named returns the meaning of a backslash and a character.
func named(c byte) (meant byte, ok bool) {
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return 0, false
	}
	return "\"\\/\b\f\n\r\t"[i], true
}

type state int

const (
	unfinished state = iota
	complete
	none
)

// decode puts the meaning of the pending bytes into text.
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
		var ok bool
		if e.text[0], ok = named(c); !ok {
			return 0, none
		}
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

// hex reads a number of digits digits at a place.
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
