package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// ownFiles is the folder in which a process finds its open files by number. giveName links them
// from there.
const ownFiles = "/proc/self/fd"

var hasOwnFiles = sync.OnceValue(func() bool {
	_, err := os.Stat(ownFiles)
	return err == nil
})

// openNameless opens a new file without a name in a folder; nil if the file system has no such
// files.
func openNameless(dir string, mode os.FileMode) (*os.File, error) {
	if !hasOwnFiles() {
		return nil, nil
	}
	for {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, uint32(mode.Perm()))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), filepath.Join(dir, "a file without a name")), nil
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL): // open(2)
			return nil, nil
		case !errors.Is(err, unix.EINTR):
			return nil, &os.PathError{Op: "open", Path: dir, Err: err}
		}
	}
}

// giveName gives a file its name.
func giveName(f *os.File, name string) error {
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("%s/%d", ownFiles, f.Fd()),
		unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

// syncFileSystem makes everything on the file system of a folder durable. Since Linux 5.8 it
// reports failed writes, syncfs(2).
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
