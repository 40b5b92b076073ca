package sqlite

import (
	"context"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// parkedMail implements store.ParkedMail.
type parkedMail struct{ db *db }

const selectParked = "SELECT trigger_id, source, item_key, status, delivered_by, person, received_at FROM deliveries WHERE disposition = 'parked' AND received_at >= ? ORDER BY received_at, id LIMIT ?"

// Parked implements ParkedMail.
func (s parkedMail) Parked(ctx context.Context, limit int) (out []store.Delivered, err error) {
	defer func() { err = s.db.describe(err) }()
	rows, err := s.db.read.QueryContext(ctx, selectParked, s.db.now().Add(-store.ParkedFor).UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		d := store.Delivered{Disposition: store.Parked}
		var at int64
		err := r.Scan(&d.TriggerID, &d.Source, &d.ItemKey, &d.Status, &d.By, &d.Person, &at)
		d.ReceivedAt = time.UnixMicro(at).UTC()
		out = append(out, d)
		return err
	})
	return out, err
}
