package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/store"
)

// markFile is the file by which the folder of a store's files is known.
const markFile = "files.id"

// findFiles makes the folder of the store's files, or finds out that they are on another machine.
// The first machine that opens the store has them; the database says which that is. Machines may
// share the folder.
func (d *db) findFiles(ctx context.Context, c *pgx.Conn, under string) (err error) {
	if d.dir, err = filepath.Abs(filepath.Join(under, d.id)); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the store's files: %w", err)
	}
	mark, err := markOf(d.dir)
	if err != nil {
		return fmt.Errorf("cannot mark the folder of the store's files: %w", err)
	}
	const find = "SELECT value FROM meta WHERE key = 'files'"
	var files string
	if err = c.QueryRow(ctx, find).Scan(&files); errors.Is(err, pgx.ErrNoRows) {
		if _, err = c.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('files', $1) ON CONFLICT DO NOTHING",
			mark+" "+store.ThisMachine().Name); err == nil {
			err = c.QueryRow(ctx, find).Scan(&files)
		}
	}
	if err != nil {
		return err
	}
	if there, machine, _ := strings.Cut(files, " "); there != mark {
		d.elsewhere = machine
	}
	return nil
}

// markOf reads the mark of a folder, and gives it one if it has none. With the lock, nobody reads a
// mark that is not yet written.
func markOf(dir string) (mark string, err error) {
	file, err := durable.Lock(filepath.Join(dir, markFile), 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err := io.ReadAll(file)
	if mark = strings.TrimSpace(string(data)); err != nil || mark != "" {
		return mark, err
	}
	mark = uuid.NewString()
	_, err = file.WriteString(mark)
	return mark, errors.Join(err, file.Sync())
}
