// Package setfiles keeps files of an eval set's folder by content, so that a machine that has no such
// folder can go on with a run. It knows nothing of plans and agents: its callers say what is needed.
package setfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/workspace"
)

// The most that is kept of a folder. Files are copied when a run is planned, and are in the database
// for as long as the run.
const (
	MostFiles = 5000
	MostBytes = 64_000_000
)

// Kept says which files of a folder are kept.
type Kept struct {
	// Files is the snapshot that has them, among the blocks of the store.
	Files snapshot.Shared `json:"files"`
	// Named are the files without which the run cannot go on, relative to the folder and
	// slash-separated. A folder that has them all is taken for the eval set's.
	Named []string `json:"named,omitempty"`
}

// Folder is the folder of an eval set, and what of it is to be kept.
type Folder struct {
	// Dir is absolute. Whole says that all of it is to be kept, unless it is too large; otherwise
	// only what is named is.
	Dir   string
	Whole bool
	// Named are the files and folders that the plan names, relative to Dir or absolute.
	Named []string
	// Without is a folder that is never kept: that of the store.
	Without string
	// MostFiles and MostBytes are the limits.
	MostFiles int
	MostBytes int64
}

// Keep stores files of a folder in blocks, and returns which blocks they need. temp is a folder on
// this machine for the time that it takes. notes say to a user what is not kept. What it returns is
// nil if there is nothing to keep.
func (f Folder) Keep(ctx context.Context, temp string, in snapshot.Blocks) (k *Kept, needs, notes []string, err error) {
	chosen, notes := f.choose(ctx)
	if len(chosen.paths) == 0 {
		return nil, nil, notes, nil
	}
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return nil, nil, nil, err
	}
	tmp, err := os.MkdirTemp(temp, "set-*.tmp")
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	for _, name := range chosen.paths {
		from, named := filepath.Join(f.Dir, name), slices.Index(chosen.named, filepath.ToSlash(name))
		switch err := copyFile(from, filepath.Join(tmp, folder, name)); {
		case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) && named < 0: // nobody has asked for it
		case err != nil && named >= 0:
			chosen.named = slices.Delete(chosen.named, named, named+1)
			notes = append(notes, fmt.Sprintf("%s is not in the plan: %v", name, err))
		case err != nil:
			return nil, nil, nil, err
		}
	}
	s := &snapshot.Store{Dir: filepath.Join(tmp, "blocks"), Root: tmp, WithoutSockets: true}
	if _, err := s.Take(folder, folder); err != nil {
		return nil, nil, nil, err
	}
	k = &Kept{Named: chosen.named}
	k.Files, needs, err = s.Share(ctx, folder, in)
	return k, needs, notes, err
}

// folder is the name of the folder in its snapshot, and of the snapshot.
const folder = "set"

// IsIn reports whether a folder has the files without which the run cannot go on.
func (k *Kept) IsIn(dir string) bool {
	return !slices.ContainsFunc(k.Named, func(name string) bool {
		local, err := filepath.Localize(name)
		if err != nil {
			return true
		}
		_, err = os.Stat(filepath.Join(dir, local))
		return err != nil
	})
}

// Get makes a folder of the files that are kept, unless it is there. Several processes may do so at
// once. The error is [snapshot.ErrLost] if the files cannot be had any more.
func (k *Kept) Get(ctx context.Context, from snapshot.Blocks, dir string) (err error) {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "set-*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, workspace.Remove(tmp)) }()
	s := &snapshot.Store{Dir: filepath.Join(tmp, "blocks"), Root: tmp, WithoutSockets: true}
	if err := s.Fetch(ctx, folder, k.Files, from, []string{folder}); err != nil {
		return fmt.Errorf("the files of the eval set's folder: %w", err)
	}
	if err := s.Restore(folder); err != nil {
		return err
	}
	err = os.Rename(filepath.Join(tmp, folder), dir)
	if info, there := os.Stat(dir); err != nil && there == nil && info.IsDir() {
		return nil // another process was faster
	}
	return errors.Join(err, durable.Sync(filepath.Dir(dir)))
}

// copyFile copies a file, with its mode and time, to a path whose folders are made.
func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file any more", from)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), os.Chmod(to, info.Mode().Perm()), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// ofGit reports whether a folder is that of a repository.
func ofGit(path string) bool { return filepath.Base(path) == ".git" }

// isHidden reports whether a path has a name that begins with a dot, or one of what tools make anew, or of
// files of variables, which have secrets.
func isHidden(path string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(name string) bool {
		return strings.HasPrefix(name, ".") && name != "." || name == "node_modules" || name == "__pycache__" ||
			strings.HasSuffix(name, ".env")
	})
}

// regular returns the size of a file, also behind a link, and whether it is one.
func regular(path string) (size int64, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

var errFull = errors.New("too large")

// walk calls add with all files below a folder, relative to dir, except those that skip names.
func walk(dir, below string, skip func(name string) bool, add func(name string) error) error {
	return filepath.WalkDir(filepath.Join(dir, below), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read cannot be kept
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && skip(name):
			return fs.SkipDir
		case e.IsDir() || skip(name):
			return nil
		}
		return add(name)
	})
}
