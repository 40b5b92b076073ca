package rules

import (
	"sync"
	"time"
)

// lookAgain is how long a commit of another process can go unnoticed when its message was lost.
const lookAgain = 5 * time.Second

// changes tells those who wait for it that a run has changed. All who wait for one run share a
// channel.
type changes struct {
	// hasChanged is that of the database.
	hasChanged func() bool

	mu sync.Mutex
	// waited are the channels that were given out since the run last changed. The one of "" is for
	// any run.
	waited map[string]chan struct{}
	// timer runs while somebody waits.
	timer  *time.Timer
	closed bool
}

func newChanges(hasChanged func() bool) *changes {
	return &changes{hasChanged: hasChanged, waited: map[string]chan struct{}{}}
}

// of returns a channel that is closed at the next change of a run, or of any if runID is empty.
func (c *changes) of(runID string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch, ok := c.waited[runID]
	if !ok {
		ch = make(chan struct{})
		if c.closed {
			close(ch)
			return ch
		}
		c.waited[runID] = ch
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(lookAgain, c.look)
	}
	return ch
}

// announce says that runs have changed.
func (c *changes) announce(runs ...string) {
	if len(runs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range append(runs, "") {
		if ch, ok := c.waited[id]; ok {
			close(ch)
			delete(c.waited, id)
		}
	}
}

// announceAll says that any run may have changed.
func (c *changes) announceAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.waited {
		close(ch)
	}
	clear(c.waited)
}

// look announces everything if anybody has committed something since the last time, and looks again
// later as long as somebody waits.
func (c *changes) look() {
	if c.hasChanged() {
		c.announceAll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	if len(c.waited) > 0 && !c.closed {
		c.timer = time.AfterFunc(lookAgain, c.look)
	}
}

// close ends all waiting.
func (c *changes) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.announceAll()
}
