package rules

import "database/sql"

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
	t := &Tx{db: d, stmts: map[string]*sql.Stmt{}}
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
	if *failure = op.run(w); *failure != nil {
		if err := w.tx.Exec("ROLLBACK TO op"); err != nil {
			return err
		}
	}
	return w.tx.Exec("RELEASE op")
}
