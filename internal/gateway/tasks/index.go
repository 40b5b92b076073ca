package tasks

import (
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/mcp"
)

// taskIndex finds the tasks that have not ended, by our ids and by those of their servers.
type taskIndex struct {
	mu         sync.Mutex
	active     map[string]*task // the tasks that are in the store
	byUpstream map[upstreamID]*task
}

// upstreamID identifies a task at its server. The server's ids are unique within a session; over
// stdio, or without a session, within the connection.
type upstreamID struct {
	server, session string
	client          *mcp.Client
	id              string
}

func newTaskIndex() *taskIndex {
	return &taskIndex{active: map[string]*task{}, byUpstream: map[upstreamID]*task{}}
}

func (x *taskIndex) add(t *task) {
	rec, _ := t.record()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.active[rec.ID] = t
}

// drop forgets a task that has ended.
func (x *taskIndex) drop(t *task) {
	rec, _ := t.record()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.active, rec.ID)
	if x.byUpstream[t.key] == t {
		delete(x.byUpstream, t.key)
	}
}

// claim assigns an id of its server to a task, unless another task has it.
func (x *taskIndex) claim(t *task, key upstreamID) (other *task) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if other = x.byUpstream[key]; other == nil || other == t {
		x.byUpstream[key], t.key = t, key
		return nil
	}
	return other
}

// byID returns the task with our id, or nil if it has ended.
func (x *taskIndex) byID(id string) *task {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.active[id]
}

// byUpstreamID returns the task with an id of its server, or nil if it has ended.
func (x *taskIndex) byUpstreamID(key upstreamID) *task {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byUpstream[key]
}

// all returns the tasks for which is returns true. It calls is without a lock.
func (x *taskIndex) all(is func(t *task) bool) []*task {
	x.mu.Lock()
	tasks := make([]*task, 0, len(x.active))
	for _, t := range x.active {
		tasks = append(tasks, t)
	}
	x.mu.Unlock()
	return slices.DeleteFunc(tasks, func(t *task) bool { return !is(t) })
}

// count returns how many tasks there are.
func (x *taskIndex) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.active)
}
