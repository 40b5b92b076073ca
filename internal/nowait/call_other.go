//go:build !linux

package nowait

import "golang.org/x/sys/unix"

func read(fd uintptr, b []byte) (int, error) { return unix.Read(int(fd), b) }

func write(fd uintptr, buffers [][]byte) (n int, err error) {
	for _, b := range buffers {
		written, err := unix.Write(int(fd), b)
		n += max(written, 0)
		if err != nil || written < len(b) {
			return n, err
		}
	}
	return n, nil
}
