package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeEmpty makes a folder, or empties it. A power cut may have taken back the claim of an attempt
// that left files there.
func MakeEmpty(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(Remove(dir), os.Mkdir(dir, 0o700))
}

// TakeBack makes sure that folders exist and are accessible, whatever an agent has done to them. It
// puts an empty folder in the place of one that was removed or replaced. Changes over an image are
// left alone, so that tests see the modes that the agent has set.
func TakeBack(root string, folders []string) error {
	for _, name := range folders {
		if name == FolderUpper {
			continue
		}
		dir := filepath.Join(root, name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			if err := errors.Join(Remove(dir), os.MkdirAll(dir, 0o700)); err != nil {
				return err
			}
		}
		Reclaim(dir)
	}
	return nil
}

// Sync calls TakeBack for folders below a root, and makes them durable with everything in them.
func Sync(root string, folders []string) error {
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

// Reclaim makes everything below a folder readable for us, and its folders writable: an agent may
// have taken our rights away. It leaves the modes of accessible files alone, since a task's tests
// may look at them. It reports no errors; a later use of a file fails if its mode could not be
// changed.
func Reclaim(dir string) {
	_ = filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error { // the function returns no error
		if err != nil {
			return fs.SkipDir
		}
		var rights, needed fs.FileMode
		switch {
		case entry.IsDir(): // the folder is changed before its content is read
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

// Remove removes a folder with everything in it, even where an agent has made folders inaccessible.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if errors.Is(err, fs.ErrPermission) {
		Reclaim(dir)
		err = os.RemoveAll(dir)
	}
	return err
}
