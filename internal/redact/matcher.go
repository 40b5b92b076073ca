package redact

// matcher finds the longest pattern that ends at each place of a text, in one pass (Aho and
// Corasick, 1975).
type matcher struct {
	nodes []node
	// first has the nodes after the root, for the loop that reads most bytes of most texts.
	first [256]int32
	// stops are the bytes that begin a pattern or an escape.
	stops   [256]bool
	markers []string
}

// node is a prefix of patterns.
type node struct {
	// edges lead to longer prefixes. Few nodes have more than one.
	edges []edge
	// fail is the longest proper suffix that is a prefix too.
	fail int32
	// depth is the length of the prefix, match the length of the longest pattern at its end (0:
	// none), and marker the replacement of that pattern.
	depth, match, marker int32
}

type edge struct {
	b  byte
	to int32
}

func newMatcher() *matcher { return &matcher{nodes: make([]node, 1)} }

func (m *matcher) empty() bool { return len(m.nodes) == 1 }

// add adds a pattern. A pattern that exists keeps its marker.
func (m *matcher) add(pattern, marker string) {
	at := int32(0)
	for i := range len(pattern) {
		next := m.child(at, pattern[i])
		if next == 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, node{depth: int32(i + 1)})
			m.nodes[at].edges = append(m.nodes[at].edges, edge{pattern[i], next})
		}
		at = next
	}
	if n := &m.nodes[at]; n.match == 0 {
		if len(m.markers) == 0 || m.markers[len(m.markers)-1] != marker {
			m.markers = append(m.markers, marker)
		}
		n.match, n.marker = n.depth, int32(len(m.markers)-1)
	}
}

// child returns the node one byte further, 0 if there is none.
func (m *matcher) child(at int32, b byte) int32 {
	for _, e := range m.nodes[at].edges {
		if e.b == b {
			return e.to
		}
	}
	return 0
}

// link computes the fields that depend on all patterns. A node's suffixes are shorter than it, so
// going by depth computes them first.
func (m *matcher) link() {
	queue := make([]int32, 0, len(m.nodes))
	m.stops['\\'], m.stops['%'] = true, true
	for _, e := range m.nodes[0].edges {
		m.first[e.b], m.stops[e.b] = e.to, true
		queue = append(queue, e.to)
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range m.nodes[at].edges {
			to := &m.nodes[e.to]
			to.fail = m.step(m.nodes[at].fail, e.b)
			if suffix := m.nodes[to.fail]; to.match == 0 {
				to.match, to.marker = suffix.match, suffix.marker
			}
			queue = append(queue, e.to)
		}
	}
}

// step returns the node of the longest prefix at the end of the text after one more byte.
func (m *matcher) step(at int32, b byte) int32 {
	for at != 0 {
		if next := m.child(at, b); next != 0 {
			return next
		}
		at = m.nodes[at].fail
	}
	return m.first[b]
}

// skip counts the bytes at the beginning of p that begin neither a pattern nor an escape.
func (m *matcher) skip(p []byte) int {
	for i, b := range p {
		if m.stops[b] {
			return i
		}
	}
	return len(p)
}

// occursIn reports whether p contains a pattern, and returns the first.
func (m *matcher) occursIn(p []byte) (first *node, found bool) {
	s := newScanner(m, func(_, _ int, n *node) {
		if first == nil {
			first = n
		}
	})
	for i := 0; i < len(p) && first == nil; i++ {
		if s.idle() {
			if i += m.skip(p[i:]); i == len(p) {
				break
			}
		}
		s.next(p[i])
	}
	return first, first != nil
}
