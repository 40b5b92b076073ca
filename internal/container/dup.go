package container

import (
	"os"

	"golang.org/x/sys/unix"
)

func dup(fd uintptr, name string) (*os.File, error) {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(n), name), nil
}
