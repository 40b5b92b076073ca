package image

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/evalrun/evalrun/internal/durable"
)

// lockShared takes a shared lock on a file and waits for it. It makes the file if it is not there.
// The lock lives until the file is closed, as long as this process at most.
func lockShared(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// lock takes the lock under which images are made and removed. It calls waiting if another process,
// or another part of this one, has it.
func (d directory) lock(ctx context.Context, waiting func()) (*os.File, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	return durable.WaitLock(ctx, d.path("lock"), 0o600, waiting)
}
