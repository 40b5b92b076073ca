package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schema string

//go:embed blocks.sql
var blocks string

//go:embed limits.sql
var limits string

//go:embed workers.sql
var workers string

//go:embed objects.sql
var objects string

// migrations bring a store from version i to version i+1.
var migrations = []string{schema, blocks, limits, workers, objects}

// schemaVersion is the version of the schema that this program knows.
var schemaVersion = len(migrations)

// oldestServer is the oldest version of PostgreSQL that has what is used here.
const oldestServer = 130000

// oldCommits removes the notes of processes that have written nothing for long.
const oldCommits = "DELETE FROM commits WHERE at < now() - interval '7 days'"

// migrate makes the tables of a new store and reads the store's id. One process at a time does so;
// the others wait.
func (d *db) migrate(ctx context.Context, c *pgx.Conn, mustExist bool) error {
	var server int
	if err := c.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&server); err != nil {
		return err
	}
	if server < oldestServer {
		return &connectError{text: fmt.Sprintf("the store %s is on PostgreSQL %d; at least version %d is needed",
			d.name, server/10000, oldestServer/10000)}
	}
	version, done, err := d.readMeta(ctx, c)
	mustExist = mustExist && version == 0
	if err != nil || done {
		return err
	}
	if mustExist {
		return d.missing(ctx, c)
	}
	if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1, hashtext($2))", lockKey, d.schema); err != nil {
		return err
	}
	// The lock ends with the connection.
	if version, done, err = d.readMeta(ctx, c); err != nil || done {
		return err
	}
	var there bool // the right to make a schema is asked for even if it is there
	if err := c.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", quote(d.schema)).Scan(&there); err != nil {
		return err
	}
	makeSchema := "CREATE SCHEMA " + quote(d.schema)
	if there {
		makeSchema = "SELECT 1"
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit this does nothing
	steps := []string{makeSchema}
	for _, m := range migrations[version:] {
		steps = append(steps, strings.ReplaceAll(m, " TEXT", ` TEXT COLLATE "C"`))
	}
	for _, text := range append(steps,
		fmt.Sprintf("INSERT INTO meta (key, value) VALUES ('storeId', '%s') ON CONFLICT DO NOTHING", uuid.NewString()),
		fmt.Sprintf(`INSERT INTO meta (key, value) VALUES ('schema', '%d')
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, schemaVersion)) {
		if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("making the tables of the store %s: %w", d.name, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	_, _, err = d.readMeta(ctx, c)
	return err
}

// missing is the error where there is no store yet, or none can be made.
func (d *db) missing(ctx context.Context, c *pgx.Conn) error {
	var allowed bool
	if err := c.QueryRow(ctx, `SELECT CASE WHEN to_regnamespace($1) IS NULL THEN has_database_privilege(current_database(), 'CREATE')
		ELSE has_schema_privilege($2, 'CREATE') END`, quote(d.schema), d.schema).Scan(&allowed); err != nil {
		return err
	}
	if !allowed {
		return &connectError{text: fmt.Sprintf(
			"there is no store in %s, and its user may not make one; GRANT CREATE ON DATABASE to it, or make the schema %s for it",
			d.name, d.schema)}
	}
	return fmt.Errorf("the store %s: %w", d.name, fs.ErrNotExist)
}

// readMeta reads the version of the schema and the id of the store. done is false if there is no
// store of this version yet.
func (d *db) readMeta(ctx context.Context, c *pgx.Conn) (version int, done bool, err error) {
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", quote(d.schema)+".meta").Scan(&there); err != nil || !there {
		return 0, false, err
	}
	err = c.QueryRow(ctx, `SELECT (SELECT value FROM meta WHERE key = 'schema')::int, value FROM meta WHERE key = 'storeId'`).
		Scan(&version, &d.id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, &connectError{text: fmt.Sprintf("the store %s has no id: its tables are not evalrun's, or damaged", d.name)}
	case err != nil:
		return 0, false, err
	case version > schemaVersion:
		return 0, false, &connectError{text: fmt.Sprintf(
			"the store %s has schema %d and this evalrun knows schema %d; use a newer evalrun", d.name, version, schemaVersion)}
	}
	return version, version == schemaVersion, nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
