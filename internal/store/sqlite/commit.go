package sqlite

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/internal/failpoint"
)

// maxGroup bounds how many operations share one commit.
const maxGroup = 256

// committer runs all writes of a process on one connection. Operations that arrive during a commit
// wait for it together, and share the next one. Each has a savepoint of its own, so that an
// operation that fails takes nothing with it. SQLite needs 0.2 ms to 10 ms to sync a commit;
// without groups that would bound the whole program.
type committer struct {
	db   *db
	ops  chan *operation
	quit chan struct{}
	done chan struct{}
}

type operation struct {
	step string
	run  func(*write) error
	err  chan error
	// relaxed says that a power cut may take the operation back. Nothing may follow from it outside
	// the store that could not be done again.
	relaxed bool
	// wake and changed are those of the transaction when the operation had run.
	wake    bool
	changed map[string]bool
}

func startCommitter(s *db) *committer {
	c := &committer{db: s, ops: make(chan *operation), quit: make(chan struct{}), done: make(chan struct{})}
	go c.loop()
	return c
}

func (c *committer) stop() {
	close(c.quit)
	<-c.done
}

func (c *committer) loop() {
	defer close(c.done)
	ctx := context.Background()
	w := newWrite(c.db)
	defer w.tx.close()
	for {
		var group []*operation
		select {
		case op := <-c.ops:
			group = c.collect(op)
		case <-c.quit:
			return
		}
		if w.tx.conn == nil {
			conn, err := c.db.write.Conn(ctx)
			if err != nil {
				fail(group, err)
				continue
			}
			w.tx.conn = conn
		}
		relaxed, strict := split(group)
		c.runGroup(w, relaxed, "NORMAL")
		c.runGroup(w, strict, "FULL")
	}
}

// split parts the operations that need no sync from the others, so that they do not wait for one.
func split(group []*operation) (relaxed, strict []*operation) {
	for _, op := range group {
		if op.relaxed {
			relaxed = append(relaxed, op)
		} else {
			strict = append(strict, op)
		}
	}
	return relaxed, strict
}

// collect adds the operations that are waiting already.
func (c *committer) collect(first *operation) []*operation {
	group := []*operation{first}
	for len(group) < maxGroup {
		select {
		case op := <-c.ops:
			group = append(group, op)
		default:
			return group
		}
	}
	return group
}

// runGroup runs operations in one transaction with a mode of SQLite's PRAGMA synchronous.
func (c *committer) runGroup(w *write, group []*operation, synchronous string) {
	if len(group) == 0 {
		return
	}
	defer failpoint.Transaction()()
	t, errs := w.tx, make([]error, len(group))
	commit := func() error {
		if err := t.setSynchronous(synchronous); err != nil {
			return err
		}
		if err := t.exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		if err := sameSchema(t); err != nil {
			return err
		}
		t.now = c.db.now().UnixMicro() // not before the lock is there: it may have been waited for
		for i, op := range group {
			t.wake, t.changed = false, map[string]bool{}
			if len(group) == 1 { // it needs no savepoint: nothing else can fail with it
				if err := op.run(w); err != nil {
					return err
				}
			} else if err := w.runInSavepoint(op, &errs[i]); err != nil {
				return err
			}
			op.wake, op.changed = t.wake && errs[i] == nil, t.changed
		}
		failpoint.Hit("store.commit")
		return t.exec("COMMIT")
	}
	if err := commit(); err != nil {
		_ = t.exec("ROLLBACK") // there may be none to roll back
		fail(group, err)
		return
	}
	failpoint.Hit("store.committed")
	wake, changed := false, map[string]bool{}
	for i, op := range group {
		wake = wake || op.wake
		maps.Copy(changed, op.changed)
		op.err <- errs[i]
	}
	runs := slices.Collect(maps.Keys(changed))
	c.db.changes.announce(runs...)
	if wake || len(runs) > 0 {
		c.db.wake.tell(wake, runs)
	}
}

// sameSchema makes sure, with the lock held, that no newer program has migrated the store since it
// was opened. What this program writes could mean something else there.
func sameSchema(t *tx) error {
	var version int
	if err := t.row([]any{&version},
		"SELECT user_version FROM pragma_user_version"); err != nil || version == len(migrations) {
		return err
	}
	return &migratedError{t.db.file, version}
}

// migratedError ends every process that still uses the store as it was.
type migratedError struct {
	file    string
	version int
}

func (e *migratedError) Error() string {
	return fmt.Sprintf(
		"a newer evalrun has migrated %s to schema %d while this process, which knows schema %d, used it; nothing more is written here, start again with the newer evalrun",
		e.file, e.version, len(migrations))
}

// Broken implements the method that [store.IsBroken] asks for.
func (e *migratedError) Broken() bool { return true }

func fail(group []*operation, err error) {
	for _, op := range group {
		op.err <- err
	}
}
