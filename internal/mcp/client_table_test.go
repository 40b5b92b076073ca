package mcp

import (
	"encoding/json"
	"testing"
)

// Given a call that waits, when two answers come for it, then it gets the first.
func TestCallTableSettlesOnce(t *testing.T) {
	table := newCallTable(7)
	p := &clientCall{id: table.nextID(), answers: make(chan clientAnswer, 1)}
	if p.id != 8 || !table.add(p) || table.lookup(json.RawMessage(`8`)) != p {
		t.Fatalf("the call has id %d and is not found", p.id)
	}
	table.settle(p, clientAnswer{result: json.RawMessage(`1`)})
	table.settle(p, clientAnswer{result: json.RawMessage(`2`)})
	if a := <-p.answers; string(a.result) != `1` {
		t.Errorf("the answer is %s", a.result)
	}
	if table.take(p) || table.lookup(json.RawMessage(`8`)) != nil {
		t.Error("the call still waits")
	}
}

// Given a table, when an id comes back that is none of its own, then it finds nothing.
func TestCallTableLookup(t *testing.T) {
	table := newCallTable(0)
	table.add(&clientCall{id: table.nextID()})
	for _, id := range []string{``, `null`, `"1"`, `2`, `1.0`, `99999999999999999999`} {
		if p := table.lookup(json.RawMessage(id)); p != nil {
			t.Errorf("%s finds call %d", id, p.id)
		}
	}
}

// Given a subscription and calls, then the only call is the one that is no subscription.
func TestCallTableOnly(t *testing.T) {
	table := newCallTable(0)
	add := func(method string) *clientCall {
		p := &clientCall{Call: Call{Method: method}, id: table.nextID()}
		table.add(p)
		return p
	}
	add(MethodListen)
	if p := table.only(); p != nil {
		t.Errorf("only a subscription waits, but call %d is found", p.id)
	}
	first := add(MethodToolsCall)
	if table.only() != first {
		t.Error("the only call is not found")
	}
	add(MethodPing)
	if p := table.only(); p != nil {
		t.Errorf("two calls wait, but call %d is found", p.id)
	}
}

// Given a table that was closed, then its calls are handed out once and no more are let in.
func TestCallTableClose(t *testing.T) {
	table := newCallTable(0)
	p := &clientCall{id: table.nextID()}
	table.add(p)
	if open := table.close(); len(open) != 1 || open[p.id] != p {
		t.Errorf("closing hands out %v", open)
	}
	if open := table.close(); len(open) != 0 {
		t.Errorf("closing again hands out %v", open)
	}
	if table.add(&clientCall{id: table.nextID()}) || table.take(p) {
		t.Error("a closed table holds calls")
	}
}
