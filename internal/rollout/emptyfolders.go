package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// emptyFolders are the folders of a suspended rollout, below its root, with nothing in them. What
// carries a store from one job of CI to the next often leaves such folders out, and they are made
// again then.
type emptyFolders struct{ root string }

func (e emptyFolders) file() string { return filepath.Join(e.root, "empty-folders.json") }

// note writes down which folders are empty. It need not survive a power cut: that leaves folders
// alone.
func (e emptyFolders) note(folders []string) error {
	empty := []string{}
	for _, name := range folders {
		err := filepath.WalkDir(filepath.Join(e.root, name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return nil //nolint:nilerr // what cannot be read is not empty
			}
			inside, err := os.ReadDir(path)
			if err != nil || len(inside) > 0 {
				return nil //nolint:nilerr // likewise
			}
			below, err := filepath.Rel(e.root, path)
			empty = append(empty, below)
			return err
		})
		if err != nil {
			return err
		}
	}
	data, err := json.Marshal(empty)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(e.file()+".tmp", data, 0o600), os.Rename(e.file()+".tmp", e.file()))
}

// makeAgain makes the folders that are missing.
func (e emptyFolders) makeAgain() error {
	data, err := os.ReadFile(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an earlier version has suspended it
	}
	var empty []string
	if err == nil {
		err = json.Unmarshal(data, &empty)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.file(), err)
	}
	for _, below := range empty {
		if !filepath.IsLocal(below) {
			return fmt.Errorf("%s: %q leads out of the folder", e.file(), below)
		}
		if err := os.MkdirAll(filepath.Join(e.root, below), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// forget removes what note has written: from now on there is a copy.
func (e emptyFolders) forget() error {
	if err := os.Remove(e.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
