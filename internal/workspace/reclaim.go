package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeEmpty makes a folder, or empties it: an attempt may have been there of which not even the
// claim is left.
func MakeEmpty(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
}

// TakeBack makes folders that agents may write to folders of ours again, whatever has become of
// them. If an agent has removed or replaced one there is an empty one in its place.
func TakeBack(root string, folders []string) error {
	for _, name := range folders {
		dir := filepath.Join(root, name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
				return err
			}
		}
		Reclaim(dir)
	}
	return nil
}

// Keep makes folders below a root durable, which whoever comes next needs.
func Keep(root string, folders []string) error {
	if err := TakeBack(root, folders); err != nil {
		return err
	}
	for _, name := range folders {
		if err := syncTree(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// Reclaim makes everything below a folder ours to read, and its folders ours to change: the
// processes that were there may have taken our own rights away. What it cannot change is noticed
// where it is needed. What we have the rights to stays as it is, since tests may look at them.
func Reclaim(dir string) {
	_ = filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error { // the function returns no error
		if err != nil {
			return fs.SkipDir
		}
		var rights, needed fs.FileMode
		switch {
		case entry.IsDir(): // before what is in it is looked at
			rights, needed = unix.R_OK|unix.W_OK|unix.X_OK, 0o700
		case entry.Type().IsRegular():
			rights, needed = unix.R_OK, 0o600
		default:
			return nil
		}
		if unix.Access(p, uint32(rights)) == nil {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			_ = os.Chmod(p, info.Mode().Perm()|needed)
		}
		return nil
	})
}

// Remove removes a folder with everything in it, also with folders that an agent has made
// inaccessible.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, fs.ErrPermission) {
		Reclaim(dir)
		err = os.RemoveAll(dir)
	}
	return err
}
