package rules

import "errors"

// write is what an operation works with: the transaction, and a type for each kind of rows that it
// changes. Each of them knows only those that it is made of in newWrite.
type write struct {
	tx       *Tx
	holders  holderRows
	rollouts rolloutRows
	calls    callRows
	triggers triggerRows
	mail     mail
	segments segments
	batches  batchRows
	jobs     jobRows
	outbox   outboxRows
	rescored rescoredRows
	kept     keptRows
}

func newWrite(d *db) *write {
	t := &Tx{db: d, stmts: map[string]*statement{}, runs: map[string]*runRow{}}
	w := &write{tx: t, holders: holderRows{t}, rollouts: rolloutRows{t}, calls: callRows{t}}
	w.triggers = triggerRows{t, w.holders}
	w.mail = mail{t, w.rollouts, w.triggers}
	w.kept = keptRows{t}
	w.segments = segments{t, w.holders, w.rollouts, w.triggers, w.mail, w.kept}
	w.batches = batchRows{t, w.holders}
	w.jobs, w.outbox, w.rescored = jobRows{t}, outboxRows{t, w.holders}, rescoredRows{t}
	return w
}

// runInSavepoint runs an operation so that it takes nothing with it when it fails. failure is the
// operation's error; the error that is returned is one of the transaction.
func (w *write) runInSavepoint(op *operation, failure *error) error {
	if err := w.tx.Exec("SAVEPOINT op"); err != nil {
		return err
	}
	if *failure = op.run(w); *failure == nil {
		*failure = w.tx.writeRuns()
	}
	if *failure != nil {
		w.tx.forgetRuns()
		if err := w.tx.Exec("ROLLBACK TO op"); err != nil {
			return err
		}
	}
	return w.tx.Exec("RELEASE op")
}

// errCareful says that an operation of a group has failed in a way that concerns the others, or may: the group
// must be run again, carefully.
var errCareful = errors.New("the group must be run again")

// runAhead runs an operation whose statements may fail later than they are run. failure is the
// operation's error, if it has left nothing behind. An operation that is alone takes back the transaction.
func (w *write) runAhead(op *operation, alone bool, failure *error) error {
	t := w.tx
	t.wrote, t.wroteRollouts = false, false
	*failure = op.run(w)
	switch {
	case t.failed:
		return errCareful
	case *failure != nil && alone:
		return *failure
	case *failure != nil && t.wrote:
		return errCareful
	}
	if op.token == nil && t.wroteRollouts {
		clear(t.ahead) // it may have changed what was read for others
	}
	return nil
}
