package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
)

// folder keeps objects as files. Names are paths below it.
type folder struct{ dir string }

// path is where an object is. A name never leads out of the folder.
func (f *folder) path(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("the object %q is in no folder", name)
	}
	return filepath.Join(f.dir, filepath.FromSlash(name)), nil
}

// Put implements Store.
func (f *folder) Put(_ context.Context, name string, data []byte) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	// The folder itself is not made: it may be where a disk of several machines is to be.
	if _, err := os.Stat(f.dir); err != nil {
		return fmt.Errorf("the folder of blobs cannot be used; make it, or mount it: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Get implements Store.
func (f *folder) Get(_ context.Context, name string, at, size int64) (data []byte, err error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		// A folder of objects is never removed: without it the disk is not there, and the object may be.
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("the folder of blobs cannot be used; mount it: %w", err)
		}
		return nil, fmt.Errorf("%s: %w", path, ErrMissing)
	} else if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data = make([]byte, size)
	if _, err := file.ReadAt(data, at); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is cut: %w", path, ErrMissing)
	} else if err != nil {
		return nil, err
	}
	return data, nil
}

// List implements Store.
func (f *folder) List(_ context.Context, folder string, before time.Time, found func(name string) error) error {
	below, err := f.path(folder)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(below, func(path string, e fs.DirEntry, err error) error {
		if path == below && errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was put there yet
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody else has removed it
		}
		if err != nil || info.ModTime().After(before) {
			return err
		}
		name, err := filepath.Rel(f.dir, path)
		if err != nil || strings.HasPrefix(filepath.Base(name), ".") {
			return err
		}
		return found(filepath.ToSlash(name))
	})
	return err
}

// Delete implements Store.
func (f *folder) Delete(_ context.Context, name string) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
