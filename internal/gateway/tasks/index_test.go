package tasks

import (
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// Two tasks that a server has given one id: the first keeps it until it has ended.
func TestTaskIndexGivesAnIDOfAServerToOneTask(t *testing.T) {
	t.Parallel()
	x, key := newTaskIndex(), upstreamID{server: "s", id: "theirs"}
	first, second := &task{rec: store.MCPTask{ID: "first"}}, &task{rec: store.MCPTask{ID: "second"}}
	x.add(first)
	x.add(second)
	if other := x.claim(first, key); other != nil {
		t.Errorf("the id is free, but has %v", other.rec.ID)
	}
	if other := x.claim(first, key); other != nil {
		t.Errorf("a task may claim its id again, but %v has it", other.rec.ID)
	}
	if other := x.claim(second, key); other != first {
		t.Errorf("expected the first task, got %v", other)
	}
	x.drop(second)
	if x.byUpstreamID(key) != first || x.byID("first") != first || x.count() != 1 {
		t.Error("the end of the second task has taken the first one out")
	}
	x.drop(first)
	if x.byUpstreamID(key) != nil || x.byID("first") != nil || x.count() != 0 {
		t.Error("a task that has ended is still there")
	}
	if other := x.claim(second, key); other != nil {
		t.Errorf("the id is free again, but %v has it", other.rec.ID)
	}
}
