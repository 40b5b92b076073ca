package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
	path := filepath.Join(d.dir, markFile)
	mark := uuid.NewString()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.WriteString(mark)
		err = errors.Join(err, file.Close())
	} else if errors.Is(err, fs.ErrExist) {
		var data []byte
		data, err = os.ReadFile(path)
		mark = strings.TrimSpace(string(data))
	}
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
