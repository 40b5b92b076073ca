package rules

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/store"
)

// maxGroup bounds how many operations share one commit.
const maxGroup = 256

// committer runs all writes of a process on one connection. Operations that arrive during a commit
// wait for it together, and share the next one. Each has a savepoint of its own, so that an
// operation that fails takes nothing with it. A disk needs 0.2 ms to 10 ms to sync a commit;
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
	// token is that of the one rollout that the operation changes, if that is all that it changes of rollouts.
	token *store.Token
	// relaxed says that a power cut may take the operation back. Nothing may follow from it outside
	// the store that could not be done again.
	relaxed bool
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
		relaxed, strict := split(group)
		c.runGroup(w, relaxed, true)
		c.runGroup(w, strict, false)
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

// runGroup runs operations in one transaction, which a power cut may take back if it is relaxed.
func (c *committer) runGroup(w *write, group []*operation, relaxed bool) {
	if len(group) == 0 {
		return
	}
	defer failpoint.Transaction()()
	errs := make([]error, len(group))
	var what Changed
	var since time.Time // of the first failure
	w.tx.careful = !c.db.Pipelines()
	for failures := 0; ; {
		var err error
		if what, err = c.try(w, group, relaxed, errs); err == nil {
			break
		}
		w.tx.rollBack()
		if errors.Is(err, errCareful) {
			w.tx.careful = true
			continue
		}
		if failures++; failures == 1 {
			since = time.Now()
		}
		if !c.db.Again(err, failures, since, c.quit) {
			fail(group, err)
			return
		}
	}
	failpoint.Hit("store.committed")
	for i, op := range group {
		op.err <- errs[i]
	}
	c.db.changes.announce(what.Runs...)
	if what.Dispatchers || len(what.Runs) > 0 {
		c.db.Tell(what)
	}
}

// try runs a group once.
func (c *committer) try(w *write, group []*operation, relaxed bool, errs []error) (what Changed, err error) {
	t := w.tx
	t.forgetRuns()
	t.failed, t.last = false, nil
	clear(errs)
	if err := t.connect(); err != nil {
		return what, err
	}
	if err := c.db.Begin(t, relaxed); err != nil {
		return what, err
	}
	if err := w.rollouts.readAhead(group); err != nil {
		return what, err
	}
	changed := map[string]bool{}
	for i, op := range group {
		t.wake, t.changed = false, map[string]bool{}
		switch {
		case !t.careful:
			err = w.runAhead(op, len(group) == 1, &errs[i])
		case len(group) == 1: // it needs no savepoint: nothing else can fail with it
			err = op.run(w)
		default:
			err = w.runInSavepoint(op, &errs[i])
		}
		if err != nil {
			return what, err
		}
		if errs[i] == nil {
			what.Dispatchers = what.Dispatchers || t.wake
			maps.Copy(changed, t.changed)
		}
	}
	what.Runs = slices.Collect(maps.Keys(changed))
	if err := cmp.Or(t.writeRuns(), t.flush()); err != nil {
		if !t.careful {
			err = errCareful
		}
		return what, err
	}
	failpoint.Hit("store.commit")
	return what, c.db.Commit(t, what)
}

// Together runs transactions of the database's own as one group, as the committer does when they
// wait at the same time. It is for tests of a database.
func (d *db) Together(runs ...func(*Tx) error) (errs []error) {
	w := newWrite(d)
	defer w.tx.close()
	var group []*operation
	for _, run := range runs {
		group = append(group, &operation{run: func(w *write) error { return run(w.tx) }, err: make(chan error, 1)})
	}
	d.commit.runGroup(w, group, false)
	for _, op := range group {
		errs = append(errs, <-op.err)
	}
	return errs
}

func fail(group []*operation, err error) {
	for _, op := range group {
		op.err <- err
	}
}

// MigratedError is the error of a transaction on a database that a newer program has migrated since
// it was opened. It ends every process that still uses the store as it was.
func MigratedError(place string, found, known int) error { return &migratedError{place, found, known} }

type migratedError struct {
	place        string
	found, known int
}

func (e *migratedError) Error() string {
	return fmt.Sprintf(
		"a newer evalrun has migrated %s to schema %d while this process, which knows schema %d, used it; nothing more is written here, start again with the newer evalrun",
		e.place, e.found, e.known)
}

// Broken implements the method that [store.IsBroken] asks for.
func (e *migratedError) Broken() bool { return true }
