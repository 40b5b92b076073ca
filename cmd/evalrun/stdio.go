package main

import (
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// messageFiles returns stdin and stdout for messages, until restore is called. Pipes and sockets do
// not block in between, so that no thread waits in them. Others stay as they are, such as a
// terminal or a file that takes other output too: other processes would see the change. From now on
// a client that has gone causes a write error, not a signal that ends the program before it has
// cleaned up.
func messageFiles() (in, out *os.File, restore func()) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	files := []*os.File{os.Stdin, os.Stdout}
	var changed []int
	for fd, f := range files {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		// If a file does not block already, its creator relies on that. A file that is also stderr stays
		// as it is.
		if err == nil && flags&unix.O_NONBLOCK == 0 && isConnection(f) && !isSame(f, os.Stderr) {
			changed = append(changed, fd)
		}
	}
	for _, fd := range changed {
		if syscall.SetNonblock(fd, true) == nil {
			files[fd] = os.NewFile(uintptr(fd), files[fd].Name())
		}
	}
	return files[0], files[1], func() {
		for _, fd := range changed {
			_ = syscall.SetNonblock(fd, false) // it may be closed
		}
	}
}

func isConnection(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0
}

func isSame(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
