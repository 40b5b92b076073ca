package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a feed of how often a run was read.
type counted struct {
	*testing.T
	Feed[int]
	next chan struct{}
	fail error
}

func newCounted(t *testing.T, pause time.Duration) *counted {
	c := &counted{T: t, next: make(chan struct{})}
	c.Feed = Feed[int]{pause: pause, runs: map[string]*followed[int]{}, changed: func(string) <-chan struct{} { return c.next },
		read: func(_ context.Context, _ string, known int) (int, error) { return known + 1, c.fail }}
	return c
}

// change changes the run.
func (c *counted) change() {
	close(c.next)
	c.next = make(chan struct{})
}

func (c *counted) now(f *Follower[int], want int) {
	c.Helper()
	if n, _, err := f.Now(c.Context()); n != want || err != nil {
		c.Errorf("it is %d, %v; want %d", n, err, want)
	}
}

// However many follow a run, each change is read once, by whoever asks first, and who asks late has the
// newest. Nothing is kept of a run that nobody follows, nor of an error.
func TestAChangeIsReadOnce(t *testing.T) {
	t.Parallel()
	c := newCounted(t, 0)
	first, second, other := c.Follow("run", 10), c.Follow("run", 20), c.Follow("other", 30)
	c.now(first, 11)
	c.now(second, 11)
	c.now(other, 31)
	_, changed, _ := second.Now(t.Context())
	c.change()
	select {
	case <-changed:
	default:
		t.Error("who follows is not told of a change")
	}
	c.now(second, 12)
	c.change()
	c.now(second, 13)
	c.now(first, 13)
	c.change()
	c.fail = errors.New("the disk is gone")
	if _, _, err := first.Now(t.Context()); !errors.Is(err, c.fail) {
		t.Error("an error is not told: ", err)
	}
	c.fail = nil
	c.now(second, 14)
	first.Close()
	c.now(second, 14)
	second.Close()
	if again := c.Follow("run", 40); len(c.runs) != 2 {
		t.Errorf("%d runs are followed", len(c.runs))
	} else {
		c.now(again, 41)
	}
}

// A run that changes all the time is read once a pause, and whoever waits hears of the rest.
func TestAFeedPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounted(t, time.Second)
		f := c.Follow("run", 0)
		c.now(f, 1)
		for i, want := range []int{1, 1, 1, 1, 2, 2, 2, 2, 3} { // each 300 ms
			c.change()
			n, changed, err := f.Now(t.Context())
			if n != want || err != nil {
				t.Errorf("after %d ms it is %d, %v; want %d", 300*i, n, err, want)
			}
			if i%4 != 0 || i == 0 { // or it was read just now
				<-changed
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}
