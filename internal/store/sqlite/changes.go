package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// lookAgain is how long a commit of another process can go unnoticed when its message was lost.
const lookAgain = 5 * time.Second

// changes tells those who wait for it that a run has changed. All who wait for one run share a
// channel.
type changes struct {
	db *db

	mu sync.Mutex
	// waited are the channels that were given out since the run last changed. The one of "" is for
	// any run.
	waited map[string]chan struct{}
	// timer runs while somebody waits.
	timer  *time.Timer
	closed bool

	// looking guards the next two fields: the connection that sees what others commit, and the
	// version of the database at the last look.
	looking sync.Mutex
	conn    *sql.Conn
	version int64
}

func newChanges(d *db) *changes { return &changes{db: d, waited: map[string]chan struct{}{}} }

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
	if c.hasNewVersion() {
		c.announceAll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	if len(c.waited) > 0 && !c.closed {
		c.timer = time.AfterFunc(lookAgain, c.look)
	}
}

// hasNewVersion reports whether anybody has committed since the last call. It also says yes when it
// cannot find out, because those who are woken for nothing wait again.
func (c *changes) hasNewVersion() bool {
	c.looking.Lock()
	defer c.looking.Unlock()
	ctx := context.Background()
	if c.conn == nil {
		conn, err := c.db.read.Conn(ctx) // the version that is counted is the connection's own
		if err != nil {
			return true
		}
		c.conn = conn
	}
	before := c.version
	if err := c.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&c.version); err != nil {
		_ = c.conn.Close() // another one is made the next time
		c.conn = nil
		return true
	}
	return c.version != before
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
	c.looking.Lock()
	defer c.looking.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // its database is closed next
		c.conn = nil
	}
}
