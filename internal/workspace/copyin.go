package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyIn copies a file, or what is in a folder beside what is there, to a place below a folder.
// Task and agent may have left links there: none leads out of the folder, and one in the place of
// what is put is replaced.
func CopyIn(source, below, rel string) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(below, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(below)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // what was written is closed
	if rel = filepath.FromSlash(rel); rel == "" {
		rel = "."
	}
	if !info.IsDir() {
		if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
			return err
		}
		return putEntry(root, source, rel, fs.FileInfoToDirEntry(info))
	}
	if err := root.MkdirAll(rel, 0o755); err != nil {
		return err
	}
	return filepath.WalkDir(source, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || p == source {
			return err
		}
		name, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		return putEntry(root, p, filepath.Join(rel, name), entry)
	})
}

// putEntry puts a file, a link or (without what is in it) a folder in the place of what is there; a
// folder may be there already.
func putEntry(root *os.Root, from, to string, entry fs.DirEntry) error {
	there, err := root.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case there.IsDir() && entry.IsDir():
		return nil
	default:
		if err := root.RemoveAll(to); err != nil {
			return err
		}
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case entry.IsDir():
		return root.Mkdir(to, info.Mode().Perm()|0o700)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return root.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), root.Chtimes(to, info.ModTime(), info.ModTime()))
}
