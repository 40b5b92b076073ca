package exec

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// The lock of a job is a POSIX record lock, which a process holds until it ends, however it ends.
// Unlike flock it can be asked about without being taken: a check that took it even for a moment
// would look, to a supervisor that is just coming up, like another supervisor. A process must open
// the file once only, because closing any descriptor of it gives the lock up.

// takeLock takes the lock for as long as the process lives; ok is false if another process has it.
func takeLock(path string) (f *os.File, ok bool, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, false, err
	}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
	switch {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES):
		return nil, false, f.Close()
	case err != nil:
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}

// lockHolder tells whether a process has the lock, and which; pid is not positive if it cannot be
// seen from here.
func lockHolder(path string) (pid int, held bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	asked := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := errors.Join(syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &asked), f.Close()); err != nil {
		return 0, false, err
	}
	return int(asked.Pid), asked.Type != syscall.F_UNLCK, nil
}
