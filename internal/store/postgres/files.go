package postgres

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/durable"
)

// markFile is the file by which the folder of a store's files is known.
const markFile = "files.id"

// makeFolder makes the folder of the store's files on this machine. Its mark says which files of
// rollouts are in it. Machines may share the folder.
func (d *db) makeFolder(under string) (err error) {
	if d.dir, err = filepath.Abs(filepath.Join(under, d.id)); err != nil {
		return err
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of the store's files: %w", err)
	}
	if d.files, err = markOf(d.dir); err != nil {
		return fmt.Errorf("cannot mark the folder of the store's files: %w", err)
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
