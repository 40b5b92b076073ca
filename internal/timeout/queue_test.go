package timeout

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls are what was called, with the time since the beginning.
type calls struct {
	begin time.Time
	mu    sync.Mutex
	seen  []string
}

func (c *calls) note(name string) func() {
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen = append(c.seen, name+" "+time.Since(c.begin).String())
	}
}

func (c *calls) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.seen, want) {
		t.Errorf("called %q, want %q", c.seen, want)
	}
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{begin: time.Now()}
		q := NewQueue(time.Minute)
		q.Start(c.note("a"))
		time.Sleep(20 * time.Second)
		b, restarted := q.Start(c.note("b")), q.Start(c.note("c"))
		q.Start(c.note("d"))
		time.Sleep(20 * time.Second)
		if !b.Stop() || b.Stop() {
			t.Error("Stop: want true once")
		}
		restarted.Restart()
		c.expect(t)
		time.Sleep(time.Hour)
		c.expect(t, "a 1m0s", "d 1m20s", "c 1m40s")
		if restarted.Stop() {
			t.Error("Stop of what was called: want false")
		}

		b.Restart()
		restarted.Restart()
		restarted.Stop()
		time.Sleep(time.Hour)
		c.expect(t, "a 1m0s", "d 1m20s", "c 1m40s", "b 1h1m40s")
	})
}

// A function may use its queue, and one that does not return keeps no other waiting.
func TestQueueFromItsFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &calls{begin: time.Now()}
		q := NewQueue(time.Second)
		held := make(chan struct{})
		q.Start(func() { <-held })
		q.Start(func() { q.Start(c.note("inner")) })
		time.Sleep(time.Minute)
		c.expect(t, "inner 2s")
		close(held)
	})
}

// BenchmarkStart compares what entering and leaving costs with a timer of the runtime.
func BenchmarkStart(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		q := NewQueue(time.Minute)
		for b.Loop() {
			q.Start(func() {}).Stop()
		}
	})
	b.Run("time", func(b *testing.B) {
		for b.Loop() {
			time.AfterFunc(time.Minute, func() {}).Stop()
		}
	})
}
