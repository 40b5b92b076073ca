package image

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// directory is the folder on the disk in which images are kept: their layers and records, the
// requests that were answered, and the locks and pins.
type directory string

func (d directory) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// prepare makes the folders for unfinished work.
func (d directory) prepare() (err error) {
	for _, sub := range []string{"layers", "images", "keys", "locks", "logs", "pins", "services", "tmp"} {
		err = errors.Join(err, os.MkdirAll(d.path(sub), 0o700))
	}
	return err
}

// write stores a value as JSON. The file is durable when write returns.
func (d directory) write(value any, elem ...string) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return durable.WriteFile(d.path(elem...), 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// records are the records of all images that are there.
func (d directory) records() ([]record, error) { return readAll[record](d.path("images")) }

// requests are the answered requests by the names of their files.
func (d directory) requests() (map[string]made, error) {
	entries, err := readDir(d.path("keys"))
	all := map[string]made{}
	for _, e := range entries {
		var m made
		if err := readJSON(d.path("keys", e.Name()), &m); err != nil {
			return nil, err
		}
		all[e.Name()] = m
	}
	return all, err
}

// pins returns the pins whose paths exist. It removes the others.
func (d directory) pins() ([]pin, error) {
	all, err := readAll[pin](d.path("pins"))
	for i := len(all) - 1; i >= 0; i-- {
		if _, gone := os.Lstat(all[i].Path); errors.Is(gone, os.ErrNotExist) {
			sum := sha256.Sum256([]byte(all[i].Digest + all[i].Path))
			err = errors.Join(err, os.Remove(d.path("pins", fmt.Sprintf("%x.json", sum[:12]))))
			all = slices.Delete(all, i, i+1)
		}
	}
	return all, err
}

// readDir lists a folder. A missing folder counts as empty.
func readDir(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return entries, err
}

func readAll[T any](dir string) ([]T, error) {
	entries, err := readDir(dir)
	var all []T
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue // a file that is being written
		}
		var one T
		if err := readJSON(filepath.Join(dir, e.Name()), &one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, err
}

func (d directory) used(digest string) time.Time {
	info, err := os.Stat(d.path("locks", id(digest)))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (d directory) inUse(digest string) bool {
	use, err := durable.TryLock(d.path("locks", id(digest)), 0o600)
	if err == nil {
		err = use.Close()
	}
	return err != nil
}

// id is a digest without the name of its algorithm.
func id(digest string) string {
	_, id, _ := strings.Cut(digest, ":")
	return id
}
