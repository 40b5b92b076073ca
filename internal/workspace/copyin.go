package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyIn copies a file to the path rel below a folder, or adds the content of a folder to what is
// there. A task or an agent may have left links below the folder. CopyIn follows none that leads
// out of it, and replaces one that stands where a copy belongs.
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
	defer func() { _ = root.Close() }() // the written files are closed
	if rel = filepath.FromSlash(rel); rel == "" {
		rel = "."
	}
	if !info.IsDir() {
		if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
			return err
		}
		return copyInEntry(root, source, rel, fs.FileInfoToDirEntry(info))
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
		return copyInEntry(root, p, filepath.Join(rel, name), entry)
	})
}

// copyInEntry copies one file, link or folder, without what is in the folder, and replaces what is
// there. A folder that is there already stays.
func copyInEntry(root *os.Root, from, to string, entry fs.DirEntry) error {
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
