package main

import (
	"io/fs"
	"os"
	"syscall"
)

// messageFiles are stdin and stdout for messages. Pipes and sockets do not block from then on, so that no thread waits in them. A terminal, and what other
// output goes to as well, stays as it is: others would find it changed.
func messageFiles() (in, out *os.File) {
	in, out = os.Stdin, os.Stdout
	if isConnection(in) && syscall.SetNonblock(syscall.Stdin, true) == nil {
		in = os.NewFile(uintptr(syscall.Stdin), "stdin")
	}
	if isConnection(out) && !isSame(out, os.Stderr) && syscall.SetNonblock(syscall.Stdout, true) == nil {
		out = os.NewFile(uintptr(syscall.Stdout), "stdout")
	}
	return in, out
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
