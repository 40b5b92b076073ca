package rules

import (
	"context"
	"database/sql"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// workers implements store.Workers.
type workers struct{ db *db }

// workerForgotten is how long the row of a worker stays that has died.
const workerForgotten = 24 * time.Hour

// Announce implements Workers.
func (s workers) Announce(ctx context.Context, worker store.Worker) error {
	return s.db.writeRelaxed(ctx, "announce a worker", func(w *write) error {
		if err := w.tx.Exec("DELETE FROM workers WHERE worker_id = ? OR seen_at < ?", s.db.holder, w.tx.after(-workerForgotten)); err != nil {
			return err
		}
		return w.tx.Exec("INSERT INTO workers (worker_id, name, tags, version, lacks, seen_at) VALUES (?, ?, ?, ?, ?, ?)",
			s.db.holder, worker.Name, s.db.tags, worker.Version, list(worker.Lacks), w.tx.now)
	})
}

// Leave implements Workers.
func (s workers) Leave(ctx context.Context) error {
	return s.db.writeRelaxed(ctx, "take a worker off the list", func(w *write) error {
		return w.tx.Exec("DELETE FROM workers WHERE worker_id = ?", s.db.holder)
	})
}

// Workers implements Workers.
func (s workers) Workers(ctx context.Context) (out []store.Worker, err error) {
	defer func() { err = s.db.describe(err, "read the workers") }()
	rows, err := s.db.read.QueryContext(ctx,
		"SELECT worker_id, name, tags, version, lacks, seen_at FROM workers WHERE seen_at > ? ORDER BY name, worker_id",
		s.db.now().Add(-store.WorkerKept).UnixMicro())
	if err != nil {
		return nil, err
	}
	return out, each(rows, func(r scanner) error {
		var w store.Worker
		var tags, lacks []byte
		var seen sql.NullInt64
		if err := r.Scan(&w.ID, &w.Name, &tags, &w.Version, &lacks, &seen); err != nil {
			return err
		}
		w.SeenAt = fromMicros(seen)
		if err := decode(tags, &w.Tags); err != nil {
			return err
		}
		err := decode(lacks, &w.Lacks)
		out = append(out, w)
		return err
	})
}
