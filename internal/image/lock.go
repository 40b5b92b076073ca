package image

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/evalrun/evalrun/internal/durable"
)

// lockShared takes a shared lock on a file, made if it is not there, and waits for it. The lock
// lives until the file is closed, as long as this process at most.
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

// lock takes the lock under which images are made and removed. waiting is called if another
// process, or another part of this one, has it.
func (d directory) lock(ctx context.Context, waiting func()) (*os.File, error) {
	if err := d.prepare(); err != nil {
		return nil, err
	}
	f, err := durable.TryLock(d.path("lock"), 0o600)
	if !errors.Is(err, durable.ErrLocked) {
		return f, err
	}
	waiting()
	type locked struct {
		f   *os.File
		err error
	}
	got := make(chan locked)
	go func() {
		f, err := durable.Lock(d.path("lock"), 0o600)
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
