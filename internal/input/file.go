package input

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MaxFile is the greatest size of a file that people write for evalrun.
const MaxFile = 100 << 20

// patience is how long a read from a file may take. Only special files, as some in /proc, need it.
const patience = 5 * time.Second

// Open opens a regular file for reading. Anything else, such as a named pipe or a device, is an
// error: it could wait for ever, or have no end.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // nothing waits, should it be replaced in between
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = regular(path, info)
	}
	if err != nil {
		_ = f.Close() // not read
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(patience)) // an error for files that need none
	return f, nil
}

// IsFile reports whether a path leads to a regular file.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Unreadable adds to an error of opening or reading a file the path as it was given.
func Unreadable(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("%s: cannot be read: %w", path, pathErr.Err)
	}
	return err
}

// NearFile returns the file of a folder whose name is the nearest to one that is not there, as
// Suggest does.
func NearFile(path string) string {
	if _, err := os.Lstat(path); err == nil {
		return ""
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	stem := func(name string) string { return strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)) }
	var names []string
	for _, entry := range entries {
		if Suggest(stem(path), []string{stem(entry.Name())}) != "" { // the same ending makes no two names alike
			names = append(names, entry.Name())
		}
	}
	near := Suggest(filepath.Base(path), names)
	if filepath.Dir(path) == "." {
		return near
	}
	return strings.Replace(near, `"`, `"`+filepath.Dir(path)+string(filepath.Separator), 1)
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return ReadAll(f, path, limit)
}

// ReadFS is like ReadFile for a file of a tree.
func ReadFS(tree fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(tree, name)
	if err == nil {
		err = regular(name, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return ReadAll(f, name, limit)
}

// ReadAll reads r, whose name is for messages, to its end, which must come within limit bytes.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: larger than %d MiB, the most that is read", name, limit>>20)
	}
	return data, err
}

func regular(path string, info fs.FileInfo) error {
	what := "a special file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s: expected a regular file, got %s", path, what)
}
