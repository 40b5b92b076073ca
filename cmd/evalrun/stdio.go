package main

import (
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// messageFiles are stdin and stdout for messages, until restore is called. Pipes and sockets do not
// block in between, so that no thread waits in them. What is no connection, such as a terminal, or
// takes other output as well, stays as it is: others would find it changed. And a client that has
// gone is an error of a write from now on, and not a signal that ends the program before it has
// cleaned up.
func messageFiles() (in, out *os.File, restore func()) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	files := []*os.File{os.Stdin, os.Stdout}
	var changed []int
	for fd, f := range files {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		// One that does not block already is known to whoever has started us, and to its file. One
		// that is stderr as well stays as it is.
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
