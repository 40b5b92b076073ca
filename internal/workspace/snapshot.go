package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/durable"
)

// Snapshot copies the named folders of a folder to a path that does not exist yet. The copy appears
// there whole and durable, or not at all.
func Snapshot(from, to string, names []string) error {
	tmp := to + ".tmp"
	if err := errors.Join(Remove(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	for _, name := range names {
		if err := copyTree(filepath.Join(from, name), filepath.Join(tmp, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, Remove(tmp))
		}
	}
	if err := errors.Join(durable.Sync(tmp), os.Rename(tmp, to)); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(to))
}

// Restore replaces the named folders by their copies from a snapshot.
func Restore(saved, to string, names []string) error {
	for _, name := range names {
		dir := filepath.Join(to, name)
		if err := Remove(dir); err != nil {
			return err
		}
		if err := copyTree(filepath.Join(saved, name), dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Move moves a folder to a path that does not exist yet, also on another file system.
func Move(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	return errors.Join(copyTree(from, to), Remove(from))
}

// copyTree copies one folder for [Snapshot].
func copyTree(from, to string) (err error) {
	tmp := to + ".tmp"
	if err := Remove(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(tmp, rel), entry)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w", from, err), Remove(tmp))
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, to); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(to))
}

// copyEntry copies a file, a link, or a folder without its content. It leaves out sockets, pipes
// and devices, since nothing is behind them any more.
func copyEntry(from, to string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case entry.IsDir():
		return errors.Join(os.Mkdir(to, 0o700), os.Chmod(to, info.Mode()&(fs.ModePerm|fs.ModeSticky)|0o700))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	return errors.Join(copyContent(out, in, info.Size()), out.Chmod(info.Mode().Perm()|0o600), out.Close(),
		os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// syncTree makes a folder with everything in it durable. It goes on after an error and returns the
// first.
func syncTree(dir string) error {
	var failed error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			failed = cmp.Or(failed, err)
			return fs.SkipDir
		case entry.IsDir() || entry.Type().IsRegular():
			failed = cmp.Or(failed, durable.Sync(path))
		}
		return nil
	})
	return cmp.Or(failed, err)
}

// copyContent copies a file to an empty one. Holes stay holes, since an agent may have left a
// sparse file of any size.
func copyContent(out, in *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			break
		}
		end := size
		if err == nil {
			end, err = in.Seek(data, unix.SEEK_HOLE)
		}
		if err != nil { // the file system does not support holes
			data, end = at, size
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		// io.CopyN shares the blocks on file systems that support it (copy_file_range).
		if _, err := io.CopyN(out, in, end-data); err != nil {
			return err
		}
		at = end
	}
	return out.Truncate(size)
}
