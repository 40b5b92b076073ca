package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store/rules"
)

// migrate makes the tables of a new store, or brings an older one up to date, and reads the store's
// id.
func (d *db) migrate() error {
	ctx := context.Background()
	done, err := d.readID(ctx, d.write)
	if err != nil || done {
		return err
	}
	tx, err := d.write.BeginTx(ctx, nil) // immediate: two processes may come here at once
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit this does nothing
	if done, err := d.readID(ctx, tx); err != nil || done {
		return err
	}
	version, err := d.version(ctx, tx)
	if err != nil {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrating %s to schema %d: %w", d.file, version+1, err)
		}
	}
	for _, q := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", version),
		"INSERT OR IGNORE INTO meta (key, value) VALUES ('storeId', '" + uuid.NewString() + "')",
	} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	if _, err := d.readID(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// readID reads the store's id; done is false if its tables have to be made or migrated first.
func (d *db) readID(ctx context.Context, q querier) (done bool, err error) {
	version, err := d.version(ctx, q)
	if err != nil || version < len(migrations) {
		return false, err
	}
	err = q.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'storeId'").Scan(&d.id)
	if errors.Is(err, sql.ErrNoRows) {
		return false, fmt.Errorf("%s is damaged: it has no id; restore it from a copy", d.file)
	}
	return err == nil, err
}

// version returns how many migrations the database has had. Like inspect, which reads the file, it
// refuses what is no store of ours: the file may be behind its write-ahead log.
func (d *db) version(ctx context.Context, q querier) (int, error) {
	var version, app, tables int
	err := q.QueryRowContext(ctx,
		"SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_master)").
		Scan(&version, &app, &tables)
	switch {
	case err != nil:
		return 0, err
	case app != applicationID && (app != 0 || tables > 0):
		return 0, foreignError(d.file, uint32(app))
	case version > len(migrations):
		return 0, newerError(d.file, version)
	case app == applicationID && version <= 0:
		return 0, versionError(d.file, version)
	}
	return version, nil
}

// sameSchema makes sure, with the lock held, that no newer program has migrated the store since it
// was opened. What this program writes could mean something else there.
func (d *db) sameSchema(t *rules.Tx) error {
	var version int
	if err := t.Row([]any{&version},
		"SELECT user_version FROM pragma_user_version"); err != nil || version == len(migrations) {
		return err
	}
	return rules.MigratedError(d.file, version, len(migrations))
}

// querier is the database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
