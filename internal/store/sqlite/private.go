package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files and folders of a store. Payloads, logs and workspaces are in them, so they are for their
// owner only, whoever may read the folder in which the store was made.
var (
	privateFiles   = []string{"store.db", "store.db-wal", "store.db-shm", "gateway.token"}
	privateFolders = []string{"runs", "work", "jobs", "wake"}
)

// createPrivate makes the file of a store, which SQLite would make for everybody to read. The files
// of its log get the same mode.
func createPrivate(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// makePrivate takes from others the rights to what is in a store. It returns what it cannot change.
func makePrivate(dir string) (left []string) {
	for _, name := range append(append([]string{}, privateFiles...), privateFolders...) {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Mode()&0o077 == 0 || info.Mode()&fs.ModeSymlink != 0) {
			continue
		}
		if err == nil {
			err = os.Chmod(path, info.Mode().Perm()&0o700)
		}
		if after, statErr := os.Lstat(path); err == nil && statErr == nil && after.Mode()&0o077 != 0 {
			err = errors.New("the file system does not keep modes")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("others may read %s, and that cannot be changed: %v", path, err))
		}
	}
	return left
}
