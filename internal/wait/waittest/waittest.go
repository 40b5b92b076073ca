// Package waittest tests what every source of package wait must do. It knows the interface
// [wait.Source] and nothing of any source.
package waittest

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/wait"
)

// Case is a source and one job of it.
type Case struct {
	Source wait.Source
	// Job is a trigger. If its Spec has no ItemKey, the source starts its job; else the job runs
	// already.
	Job wait.Job
	// Starts counts the jobs that have been started. It may be nil.
	Starts func() int
	// OnStep has f called at each step of the calls that follow, such as those of a [Transport], so
	// that they can be stopped there. It may be nil.
	OnStep func(f func())
	// End ends the job, and returns when the source can see that. It is nil for a source that
	// cannot tell whether a job is done.
	End func()
}

// Run tests that a source keeps to its interface.
func Run(t *testing.T, c Case) {
	t.Helper()
	kind := c.Source.StartKind()
	switch kind {
	case wait.Idempotent, wait.Searchable, wait.AtMostOnce:
	default:
		t.Fatalf("there is no such kind of start: %q", kind)
	}
	if c.Job.Spec.ItemKey == "" {
		c.startStopped(t, kind)
		c.start(t, kind)
	}
	var checks sync.WaitGroup
	for range 4 { // a source is used concurrently
		checks.Go(func() { c.goesOn(t) })
	}
	checks.Wait()
	c.checkStopped(t)
	if c.End == nil {
		return
	}
	c.End()
	first, again := c.hasEnded(t), c.hasEnded(t)
	if !bytes.Equal(first.Payload, again.Payload) || (first.Fault == nil) != (again.Fault == nil) {
		t.Errorf("the end has changed from %+v to %+v", first, again)
	}
	c.checkStopped(t)
	if err := c.Source.Cancel(t.Context(), c.Job); err != nil {
		t.Errorf("a job that has ended is cancelled: %v", err)
	}
}

// start starts the job. It also tries what a crash makes necessary: it looks for the job, or starts
// it again.
func (c *Case) start(t *testing.T, kind wait.Start) {
	t.Helper()
	before := 0
	if c.Starts != nil {
		before = c.Starts()
	}
	if kind == wait.Searchable {
		if key, found, err := c.Source.Find(t.Context(), c.Job); found || err != nil {
			t.Fatalf("before the start: found %q, %t, %v", key, found, err)
		}
	}
	key, err := c.Source.Start(t.Context(), c.Job)
	if key == "" || err != nil {
		t.Fatalf("the start gave the key %q, %v", key, err)
	}
	if kind != wait.AtMostOnce {
		if again, err := c.Source.Start(t.Context(), c.Job); again != key || err != nil {
			t.Errorf("the second start gave the key %q, %v; want %q", again, err, key)
		}
	}
	if kind == wait.Searchable {
		if found, ok, err := c.Source.Find(t.Context(), c.Job); found != key || !ok || err != nil {
			t.Errorf("after the start: found %q, %t, %v; want %q", found, ok, err, key)
		}
	}
	if c.Starts != nil && c.Starts() != before+1 {
		t.Errorf("%d jobs were started", c.Starts()-before)
	}
	c.Job.ItemKey = key
}

// goesOn checks a job that has not ended.
func (c *Case) goesOn(t *testing.T) {
	t.Helper()
	s, err := c.Source.Check(t.Context(), c.Job)
	if err != nil || s.Done || s.Payload != nil || s.Fault != nil || s.After < 0 {
		t.Errorf("of a job that goes on: %+v, %v", s, err)
	}
}

// hasEnded checks a job that has ended: it has a payload, which is JSON, or a fault.
func (c *Case) hasEnded(t *testing.T) wait.Status {
	t.Helper()
	s, err := c.Source.Check(t.Context(), c.Job)
	if err != nil || !s.Done {
		t.Fatalf("of a job that has ended: %+v, %v", s, err)
	}
	if (s.Fault == nil) != json.Valid(s.Payload) {
		t.Errorf("an end has a payload or a fault: %s, %v", s.Payload, s.Fault)
	}
	return s
}
