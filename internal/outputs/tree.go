package outputs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The most that the files of a program may be.
const (
	mostFiles = 20_000
	mostBytes = 1 << 30
)

// ErrTooLarge means that a folder has too many files to be looked through.
var ErrTooLarge = errors.New("the folder is too large")

// Tree knows the sums of files, which it computes again only for files that were written since. It is
// safe for concurrent use. The zero Tree is ready.
type Tree struct {
	mu    sync.Mutex
	known map[string]stamped
}

// stamped is the sum of a file as it was at a time.
type stamped struct {
	size    int64
	written time.Time
	sum     string
}

// fresh is how long after it was written a file may be written again without a later time.
const fresh = 2 * time.Second

// Sums returns the sums of files and of all files below folders, by their paths. What is not there is
// left out, and so is what skip names, if it is not nil. In folders, so are hidden files and folders
// except .env, and what is made of the rest or installed: node_modules, __pycache__, and virtual
// environments.
func (t *Tree) Sums(paths []string, skip func(path string) bool) (map[string]string, error) {
	out, bytes := map[string]string{}, int64(0)
	add := func(path string, info fs.FileInfo) error {
		if bytes += info.Size(); len(out) >= mostFiles || bytes > mostBytes {
			return fmt.Errorf("%s: %w: expected at most %d files and %d MiB", filepath.Dir(path), ErrTooLarge,
				mostFiles, mostBytes>>20)
		}
		sum, err := t.sum(path, info)
		if err == nil {
			out[path] = sum
		}
		if errors.Is(err, fs.ErrNotExist) { // it has just been removed
			return nil
		}
		return err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil || skip != nil && skip(path):
		case !info.IsDir():
			if info.Mode().IsRegular() {
				err = add(path, info)
			}
		default:
			err = t.walk(path, skip, map[string]bool{}, add)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}

// walk adds the files below a folder, also of folders to which links lead, each of those once.
func (t *Tree) walk(root string, skip func(string) bool, linked map[string]bool,
	add func(string, fs.FileInfo) error) error {
	real, err := filepath.EvalSymlinks(root)
	if err != nil || linked[real] {
		return err
	}
	linked[real] = true
	return filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		path = root + strings.TrimPrefix(path, real)
		name := d.Name()
		leave := path != root && (strings.HasPrefix(name, ".") && !strings.HasPrefix(name, ".env") ||
			skip != nil && skip(path))
		made := path != root && (name == "node_modules" || name == "__pycache__" || isVenv(path))
		switch {
		case d.IsDir() && (leave || made):
			return filepath.SkipDir
		case d.IsDir() || leave || strings.HasSuffix(name, ".pyc"):
			return nil
		}
		info, err := os.Stat(path) // what a link leads to
		switch {
		case err == nil && info.IsDir() && !made:
			if err := t.walk(path, skip, linked, add); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case err == nil && info.Mode().IsRegular():
			return add(path, info)
		}
		return nil
	})
}

// isVenv reports whether a folder is a virtual environment of Python.
func isVenv(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "pyvenv.cfg"))
	return err == nil
}

func (t *Tree) sum(path string, info fs.FileInfo) (string, error) {
	t.mu.Lock()
	known, ok := t.known[path]
	t.mu.Unlock()
	if ok && known.size == info.Size() && known.written.Equal(info.ModTime()) && time.Since(known.written) > fresh {
		return known.sum, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]stamped{}
	}
	t.known[path] = stamped{info.Size(), info.ModTime(), sum}
	return sum, nil
}

// Digest is one sum of many.
func Digest(sums map[string]string) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(sums)) {
		_, _ = fmt.Fprintf(h, "%q %s\n", path, sums[path]) // a hash does not fail
	}
	return hex.EncodeToString(h.Sum(nil))
}
