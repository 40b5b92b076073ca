package rules

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/blob"
	"github.com/evalrun/evalrun/internal/store"
)

// blocks implements store.Blocks.
type blocks struct{ db *db }

// KeepsFiles implements Blocks.
func (s blocks) KeepsFiles() int64 { return s.db.keepFiles }

// Missing implements Blocks.
func (s blocks) Missing(ctx context.Context, sums []string) (missing []string, err error) {
	err = s.db.writeRelaxed(ctx, "look for blocks of files", func(w *write) error {
		missing = nil
		// Most were asked for lately: their rows stay as they are.
		if err := w.tx.Exec("UPDATE blocks SET asked_at = ?1 WHERE sum IN (SELECT value FROM json_each(?2)) AND asked_at < ?3",
			w.tx.now, list(sums), w.tx.after(-time.Hour)); err != nil {
			return err
		}
		missing, err = w.kept.missing(sums)
		return err
	})
	return missing, err
}

// PutBlocks implements Blocks.
func (s blocks) PutBlocks(ctx context.Context, all []store.Block) error {
	object, err := s.putObject(ctx, all)
	if err != nil {
		return err
	}
	return s.db.writeRelaxed(ctx, "store blocks of files", func(w *write) error {
		var at int64
		for _, b := range all {
			data := b.Data
			if object != "" {
				data = []byte{}
			}
			if err := w.tx.Exec(`INSERT INTO blocks (sum, data, asked_at, object, starts_at, stored) VALUES (?, ?, ?, ?, ?, ?)
				ON CONFLICT (sum) DO UPDATE SET data = excluded.data, asked_at = excluded.asked_at, object = excluded.object,
				starts_at = excluded.starts_at, stored = excluded.stored`,
				b.Sum, data, w.tx.now, object, at, len(b.Data)); err != nil {
				return err
			}
			at += int64(len(b.Data))
		}
		return nil
	})
}

// blocksAtOnce is how many blocks one query reads.
const blocksAtOnce = 16

// Blocks implements Blocks.
func (s blocks) Blocks(ctx context.Context, sums []string, f func(store.Block) error) error {
	for len(sums) > 0 {
		n := min(len(sums), blocksAtOnce)
		var some []placed
		err := s.db.again(ctx, func() (err error) {
			some, err = s.read(ctx, sums[:n])
			return err
		})
		if err != nil {
			return s.db.describe(err, "read blocks of files")
		}
		for len(some) > 0 {
			n := together(some)
			err := s.fetch(ctx, some[:n])
			if errors.Is(err, blob.ErrMissing) && n > 1 { // some of them may be there
				n, err = 1, s.fetch(ctx, some[:1])
			}
			if err != nil && !errors.Is(err, blob.ErrMissing) {
				return err
			}
			for i := 0; err == nil && i < n; i++ {
				if err := f(some[i].Block); err != nil {
					return err
				}
			}
			some = some[n:]
		}
		sums = sums[n:]
	}
	return nil
}

func (s blocks) read(ctx context.Context, sums []string) (out []placed, err error) {
	stmt, err := s.db.query(ctx, "SELECT sum, data, object, starts_at, stored FROM blocks WHERE sum IN (SELECT value FROM json_each(?))")
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, list(sums))
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		var b placed
		err := r.Scan(&b.Sum, &b.Data, &b.object, &b.at, &b.stored)
		out = append(out, b)
		return err
	})
	slices.SortFunc(out, func(a, b placed) int {
		return cmp.Or(strings.Compare(a.object, b.object), cmp.Compare(a.at, b.at))
	})
	return out, err
}

// Kept implements Blocks.
func (s blocks) Kept(ctx context.Context, rolloutID string) (k store.Kept, err error) {
	err = s.db.again(ctx, func() error {
		k = store.Kept{}
		return s.db.queryRow(ctx, "SELECT segment, place, machine, files FROM kept WHERE rollout_id = ?", rolloutID).
			Scan(&k.Segment, &k.Place, &k.Machine, (*[]byte)(&k.Files))
	})
	if errors.Is(err, sql.ErrNoRows) {
		return k, store.ErrNotFound
	}
	return k, s.db.describe(err, "read where the files of rollout "+rolloutID+" are")
}

// MoveKept implements Blocks.
func (s blocks) MoveKept(ctx context.Context, tok store.Token) error {
	return s.db.writeOp(ctx, "record where the files of rollout "+tok.RolloutID+" are", func(w *write) error {
		if _, err := w.rollouts.held(tok, eval.StateEvaluating); err != nil {
			return err
		}
		return w.tx.Exec("UPDATE kept SET place = ?, machine = ? WHERE rollout_id = ?", s.db.Files(), s.db.machine.Name, tok.RolloutID)
	})
}

// PruneBlocks implements Blocks.
func (s blocks) PruneBlocks(ctx context.Context, age time.Duration) (n int, err error) {
	var before time.Time
	err = s.db.writeOp(ctx, "remove blocks of files", func(w *write) error {
		if err := w.tx.Exec(`DELETE FROM kept_blocks WHERE rollout_id IN (
			SELECT rollout_id FROM rollouts WHERE state IN ('completed', 'faulted', 'cancelled'))`); err != nil {
			return err
		}
		removed, err := w.tx.change(`DELETE FROM blocks WHERE asked_at <= ?
			AND NOT EXISTS (SELECT 1 FROM kept_blocks k WHERE k.sum = blocks.sum)`, w.tx.after(-age))
		n, before = int(removed), time.UnixMicro(w.tx.after(-age))
		return err
	})
	if err == nil {
		err = s.pruneObjects(ctx, before)
	}
	return n, err
}

// keptRows says where the files of rollouts are, and which blocks they need.
type keptRows struct{ tx *Tx }

// missing returns those of the sums of which there is no block.
func (rows keptRows) missing(sums []string) (missing []string, err error) {
	if len(sums) == 0 {
		return nil, nil
	}
	err = rows.tx.rows(func(r scanner) error {
		var sum string
		err := r.Scan(&sum)
		missing = append(missing, sum)
		return err
	}, "SELECT j.value FROM json_each(?) j WHERE NOT EXISTS (SELECT 1 FROM blocks b WHERE b.sum = j.value)", list(sums))
	return missing, err
}

// note records where the files are that a segment has left. A store in a folder has them beside it,
// unless it has them itself.
func (rows keptRows) note(o store.Rollout, k *store.Kept) error {
	place := rows.tx.db.Files()
	if k == nil && place == "" {
		return nil
	}
	machine := rows.tx.db.machine.Name
	if place == "" {
		machine = ""
	}
	if k == nil {
		k = &store.Kept{}
	}
	if err := rows.tx.Exec(`INSERT INTO kept (rollout_id, segment, place, machine, files) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (rollout_id) DO UPDATE SET segment = excluded.segment, place = excluded.place, machine = excluded.machine,
		files = excluded.files`, o.ID, o.Segment, place, machine, raw(k.Files)); err != nil {
		return err
	}
	if err := rows.tx.Exec("DELETE FROM kept_blocks WHERE rollout_id = ?", o.ID); err != nil {
		return err
	}
	return rows.need(o.ID, k.Blocks)
}

// need records the blocks that a rollout needs, or the plan of a run, until it is removed. They must be
// there.
func (rows keptRows) need(rolloutOrRun string, sums []string) error {
	missing, err := rows.missing(sums)
	if err != nil || len(sums) == 0 {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s cannot go on elsewhere: %d blocks of its files are not in the store any more, the first is %s",
			rolloutOrRun, len(missing), missing[0])
	}
	return rows.tx.Exec("INSERT INTO kept_blocks (rollout_id, sum) SELECT DISTINCT ?1, value FROM json_each(?2)",
		rolloutOrRun, list(sums))
}
