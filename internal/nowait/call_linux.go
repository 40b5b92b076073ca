package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// read is unix.Read.
func read(fd uintptr, b []byte) (int, error) {
	if !returns(fd) {
		return unix.Read(int(fd), b)
	}
	return call(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(b)), len(b))
}

// write writes what it can of buffers, if that does not wait.
func write(fd uintptr, buffers [][]byte) (int, error) {
	if !returns(fd) {
		return 0, unix.EAGAIN
	}
	if len(buffers) == 1 {
		return call(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(buffers[0])), len(buffers[0]))
	}
	var parts [8]unix.Iovec
	used := 0
	for _, b := range buffers[:min(len(buffers), len(parts))] {
		parts[used].Base = unsafe.SliceData(b)
		parts[used].SetLen(len(b))
		used++
	}
	return call(syscall.SYS_WRITEV, fd, unsafe.Pointer(&parts), used)
}

// returns reports whether a call returns at once. Whoever shares the file may have changed that, and the scheduler must be told of one that waits.
func returns(fd uintptr) bool {
	flags, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	return errno == 0 && flags&syscall.O_NONBLOCK != 0
}

func call(trap, fd uintptr, p unsafe.Pointer, size int) (int, error) {
	n, _, errno := syscall.RawSyscall(trap, fd, uintptr(p), uintptr(size))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
