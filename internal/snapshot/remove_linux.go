package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// RemoveAll removes a folder, file or link with all its content, whatever rights an agent has taken
// away and however deep it is.
func RemoveAll(path string) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(dir) }() // only read
	r := &remover{top: dir, prefix: "." + filepath.Base(path) + ".evalrun-deep-"}
	left, err := namesIn(dir) // a process that was ended in the middle has left them
	for _, name := range append(left, filepath.Base(path)) {
		if err == nil && (name == filepath.Base(path) || strings.HasPrefix(name, r.prefix)) {
			err = r.remove(dir, name, 0)
		}
	}
	for len(r.moved) > 0 && err == nil {
		next := r.moved[0]
		r.moved = r.moved[1:]
		err = r.remove(dir, next, 0)
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// remover removes folders. It moves deep folders up, so that only a limited number is open at once.
type remover struct {
	top    int
	prefix string
	moved  []string
}

func (r *remover) remove(in int, name string, depth int) error {
	err := unix.Unlinkat(in, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if unix.Unlinkat(in, name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	var stat unix.Stat_t
	if os.Geteuid() != 0 && unix.Fstatat(in, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		_ = unix.Fchmodat(in, name, 0o700, 0) // the next step fails if this does
	}
	if depth == mostOpen {
		up := r.prefix + uuid.NewString()
		r.moved = append(r.moved, up)
		return unix.Renameat(in, name, r.top, up)
	}
	fd, err := unix.Openat(in, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	names, err := namesIn(fd)
	for _, child := range names {
		if err == nil {
			err = r.remove(fd, child, depth+1)
		}
	}
	_ = unix.Close(fd) // only read
	if err != nil {
		return err
	}
	return unix.Unlinkat(in, name, unix.AT_REMOVEDIR)
}
