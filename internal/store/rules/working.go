package rules

import (
	"fmt"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/store"
)

// working are the claims whose answers this process got, and on which it has not said that its work
// has ended. A claim names them: what the process holds besides is a claim whose answer was lost, and
// is taken again. What it works on and the store knows nothing of, because a crash of the database
// took the claim back, it does not begin a second time.
type working struct {
	mu sync.Mutex
	// on are the ids and fences of claims, as claimed compares them.
	on map[string]bool
}

func newWorking() *working { return &working{on: map[string]bool{}} }

func (w *working) begin(id string, fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on[claimName(id, fence)] = true
}

func (w *working) end(id string, fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.on, claimName(id, fence))
}

// list is a JSON array of the claims.
func (w *working) list() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.on))
	for name := range w.on {
		out = append(out, name)
	}
	return list(out)
}

func claimName(id string, fence int64) string { return fmt.Sprintf("%s %d", id, fence) }

// Forget implements Queue.
func (s queue) Forget(t store.Tokens) {
	for _, one := range t.Rollouts {
		s.db.working.end(one.RolloutID, one.Fence)
	}
	for _, one := range t.Triggers {
		s.db.working.end(one.TriggerID, one.Fence)
	}
	for _, one := range t.Batches {
		s.db.working.end(one.BatchID, one.Fence)
	}
}

// forgotten is the condition that a row belongs to this process, owner, which does not know that,
// because the answer to its claim was lost. working is the list of what it knows.
func forgotten(column, owner, working string) string {
	if !byToken {
		return "FALSE"
	}
	prefix, _, found := strings.Cut(column, ".")
	if prefix += "."; !found {
		prefix = ""
	}
	return fmt.Sprintf("(%[1]sowner = %[2]s AND %[3]s || ' ' || %[1]sfence NOT IN (SELECT value FROM json_each(%[4]s)))",
		prefix, owner, column, working)
}
