// Package timeout limits how long things take, for many short things that hardly ever take that long.
package timeout

import (
	"sync"
	"time"
)

// Queue calls functions when they have been in it for a time, which is the same for all. There is one timer of the runtime for all of them, which is
// set when it has fired and not whenever something begins: setting one wakes a thread where it is the next to fire. It is safe for concurrent use.
type Queue struct {
	after time.Duration

	mu sync.Mutex
	// root is before the first and after the last of those that are entered, which are in the order in which they are due.
	root  Timer
	timer *time.Timer // nil before it is needed
	set   bool        // the timer will fire
}

// NewQueue makes a queue for functions that are to be called after a time.
func NewQueue(after time.Duration) *Queue {
	q := &Queue{after: after}
	q.root.next, q.root.prev = &q.root, &q.root
	return q
}

// After is the time after which functions are called.
func (q *Queue) After() time.Duration { return q.after }

// Timer is one function in a queue.
type Timer struct {
	queue      *Queue
	call       func()
	due        time.Time
	next, prev *Timer // nil if it is not entered
}

// Start has a function called on a goroutine of its own when the time has passed, unless it is stopped before.
func (q *Queue) Start(call func()) *Timer {
	t := &Timer{queue: q, call: call}
	t.Restart()
	return t
}

// Restart has the time begin anew, whether it has passed or was stopped.
func (t *Timer) Restart() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	t.leave()
	t.due = time.Now().Add(q.after)
	t.prev, t.next = q.root.prev, &q.root
	t.prev.next, t.next.prev = t, t
	if !q.set {
		q.wait(q.after)
	}
}

// Stop reports whether the function will not be called for the time that was running.
func (t *Timer) Stop() bool {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return t.leave()
}

// leave takes the timer out of its queue, whose mu the caller holds.
func (t *Timer) leave() (was bool) {
	if t.next == nil {
		return false
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
	return true
}

// wait sets the timer. The caller holds mu.
func (q *Queue) wait(d time.Duration) {
	q.set = true
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.fire)
		return
	}
	q.timer.Reset(d)
}

// fire calls the functions that are due.
func (q *Queue) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set = false
	now := time.Now()
	for t := q.root.next; t != &q.root; t = q.root.next {
		if left := t.due.Sub(now); left > 0 {
			q.wait(left)
			return
		}
		t.leave()
		go t.call()
	}
}
