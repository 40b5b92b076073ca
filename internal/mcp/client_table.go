package mcp

import (
	"encoding/json"
	"strconv"
	"sync"
)

// callTable holds the calls that wait for an answer. Whoever takes a call out first gives it its
// one answer.
type callTable struct {
	mu     sync.Mutex
	closed bool
	lastID int64
	calls  map[int64]*clientCall
}

// newCallTable makes a table whose first id is the one after lastID.
func newCallTable(lastID int64) *callTable {
	return &callTable{lastID: lastID, calls: map[int64]*clientCall{}}
}

// nextID is the id of the next call.
func (t *callTable) nextID() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID++
	return t.lastID
}

// add lets a call wait. It returns false if the table is closed.
func (t *callTable) add(p *clientCall) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.calls[p.id] = p
	}
	return !t.closed
}

// take takes a call out. It returns false if somebody else has done so; then an answer is there or
// comes at once.
func (t *callTable) take(p *clientCall) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.calls[p.id] == p
	delete(t.calls, p.id)
	return waiting
}

// settle gives a call its answer, unless it has one.
func (t *callTable) settle(p *clientCall, a clientAnswer) {
	if t.take(p) {
		p.settle(a)
	}
}

// lookup returns the call with an id that came back, or nil if there is none.
func (t *callTable) lookup(id json.RawMessage) *clientCall {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[n]
}

// only returns the one call that waits, apart from subscriptions. It returns nil if there is none
// or are several.
func (t *callTable) only() (only *clientCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.calls {
		if p.Method == MethodListen {
			continue
		}
		if only != nil {
			return nil
		}
		only = p
	}
	return only
}

// close takes all calls out and lets no more in. The caller settles them.
func (t *callTable) close() (open map[int64]*clientCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	open, t.calls = t.calls, map[int64]*clientCall{}
	return open
}
