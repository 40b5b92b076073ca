package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/store"
)

// heads implements store.Heads.
type heads struct{ db *db }

// RunHead implements Heads.
func (s heads) RunHead(ctx context.Context, runID string) (store.Run, error) {
	run, err := scanRun(s.db.read.QueryRowContext(ctx, selectRun+" WHERE r.run_id = ?", runID))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	return run, s.db.describe(err)
}
