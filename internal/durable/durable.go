// Package durable writes files so that they survive a crash: a file is replaced as a whole, never
// rewritten, and data that a function reports as written is on the disk. It does not know what the
// files are for.
package durable

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/uuid"
)

// WriteFile replaces a file by the output of write. It writes a temporary file beside it, syncs and
// renames that, and syncs the folder. If write fails the file is as it was. If the system has files
// without a name, the temporary file has none until it is whole, so that a process that is killed
// leaves nothing.
func WriteFile(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	tmp := temporary(path)
	f, err := openNameless(filepath.Dir(path), mode)
	nameless := f != nil
	if f == nil && err == nil {
		f, err = os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	}
	if err != nil {
		return err
	}
	named := !nameless
	defer func() {
		if err != nil && named {
			_ = os.Remove(tmp) // the error that matters is err
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && nameless {
		err = giveName(f, tmp)
		named = err == nil
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// longestName is how long a file's name may be on most systems.
const longestName = 255

// temporary returns a name beside a file that nobody else has. For a long name it begins with as
// much of it as fits.
func temporary(path string) string {
	suffix := "." + uuid.NewString()[:8] + ".tmp"
	dir, name := filepath.Split(path)
	if most := longestName - len(suffix); len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return dir + name + suffix
}

// Sync makes a file or folder durable.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // a file system that does not sync folders
	}
	return errors.Join(err, f.Close())
}

// Lock opens a file, creates it if needed, and waits for an exclusive lock on it. The lock lives
// until the file is closed, as long as this process at most.
func Lock(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// ErrLocked says that another process, or another part of this one, has a lock.
var ErrLocked = errors.New("it is locked")

// TryLock is like Lock but does not wait: the error is ErrLocked if somebody has the lock.
func TryLock(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// WaitLock is like Lock but waits only until ctx is done. It calls waiting if somebody has the
// lock.
func WaitLock(ctx context.Context, path string, mode os.FileMode, waiting func()) (*os.File, error) {
	f, err := TryLock(path, mode)
	if !errors.Is(err, ErrLocked) {
		return f, err
	}
	waiting()
	type locked struct {
		f   *os.File
		err error
	}
	got := make(chan locked)
	go func() {
		f, err := Lock(path, mode)
		select {
		case got <- locked{f, err}:
		case <-ctx.Done():
			if err == nil {
				_ = f.Close() // nobody waits for it any more
			}
		}
	}()
	select {
	case l := <-got:
		return l.f, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// OpenLog opens an append-only log of lines, locked until it is closed, cuts a last line that is
// torn, and returns its last whole line without the newline; nil if there is none.
func OpenLog(path string, mode os.FileMode) (log *os.File, last []byte, err error) {
	return openLog(Lock(path, mode))
}

// TryOpenLog is like OpenLog but does not wait: the error is ErrLocked if somebody has the log
// open.
func TryOpenLog(path string, mode os.FileMode) (log *os.File, last []byte, err error) {
	return openLog(TryLock(path, mode))
}

// WaitOpenLog is like OpenLog but waits only until ctx is done. It calls waiting if somebody has
// the log open.
func WaitOpenLog(
	ctx context.Context, path string, mode os.FileMode, waiting func(),
) (log *os.File, last []byte, err error) {
	return openLog(WaitLock(ctx, path, mode, waiting))
}

func openLog(f *os.File, err error) (*os.File, []byte, error) {
	if err != nil {
		return nil, nil, err
	}
	last, err := lastLine(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, last, nil
}

// lastLine cuts a torn last line, leaves the file at its end and returns the line before that.
func lastLine(f *os.File) ([]byte, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	end, err := lineEnd(f, size)
	if err != nil {
		return nil, err
	}
	if end < size {
		if err := f.Truncate(end); err != nil {
			return nil, err
		}
		if _, err := f.Seek(end, io.SeekStart); err != nil {
			return nil, err
		}
	}
	if end == 0 {
		return nil, nil
	}
	begin, err := lineEnd(f, end-1)
	if err != nil {
		return nil, err
	}
	last := make([]byte, end-1-begin)
	_, err = f.ReadAt(last, begin)
	return last, err
}

// lineEnd returns the offset behind the last newline before limit, 0 if there is none.
func lineEnd(f io.ReaderAt, limit int64) (int64, error) {
	buf := make([]byte, 4096)
	for limit > 0 {
		n := min(int64(len(buf)), limit)
		if _, err := f.ReadAt(buf[:n], limit-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return limit - n + int64(i) + 1, nil
		}
		limit -= n
	}
	return 0, nil
}
