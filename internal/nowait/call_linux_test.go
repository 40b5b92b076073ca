package nowait

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// Whoever shares a file may have it block from then on: it is not written to without waiting any more, and read as the file itself is.
func TestFileThatBeginsToBlock(t *testing.T) {
	e := pipe(t)
	w, r := NewWriter(e.w), Reader(e.r)
	for _, f := range []*os.File{e.r, e.w} {
		conn, err := f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), false) }), err); err != nil {
			t.Fatal(err)
		}
	}
	buffers := net.Buffers{[]byte("x")}
	if n, err := w.Write(&buffers); n != 0 || !errors.Is(err, ErrWouldWait) || len(buffers) != 1 {
		t.Errorf("%d bytes were written, %v", n, err)
	}
	if _, err := e.w.WriteString("y"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	if n, err := r.Read(b); err != nil || string(b[:n]) != "y" {
		t.Errorf("read %q, %v", b[:n], err)
	}
}
