package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// emptyFolders records the empty folders below the root of a suspended rollout. Tools that carry a
// store from one CI job to the next often leave empty folders out, so they are made again.
type emptyFolders struct{ root string }

func (e emptyFolders) file() string { return filepath.Join(e.root, "empty-folders.json") }

// note writes a file that lists the empty folders. It need not survive a power cut, which leaves
// folders alone.
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
		return nil // an earlier version has suspended the rollout
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

// forget removes the file that note has written. From now on there is a copy.
func (e emptyFolders) forget() error {
	if err := os.Remove(e.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
