// Package nowait reads and writes pipes and sockets as far as that needs no waiting, with system calls that the Go scheduler is not told of. Telling it
// wakes its monitor thread each time that a process which waits for messages gets one; the timer of that thread then often fires before the message has
// been dealt with, which costs more than dealing with it (docs/performance.md).
package nowait

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrWouldWait says that the rest cannot be written without waiting.
var ErrWouldWait = errors.New("the other side does not read fast enough")

// raw returns the connection of a file that does not block; nil if it does, or is none.
func raw(file any) syscall.RawConn {
	f, ok := file.(syscall.Conn)
	if !ok {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	flags := 0
	if conn.Control(func(fd uintptr) { flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0) }) != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	return conn
}

// gone is the error for a file that has been closed, or whose deadline has passed.
func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return err
	}
	return fmt.Errorf("%w: %w", os.ErrClosed, err)
}

// attempt is one system call on a file. It is used by one goroutine at a time.
type attempt struct {
	conn syscall.RawConn
	// once makes the system call with what is in buffers and leaves what has come of it in n and err. It is a field so that it is made only once.
	once    func(fd uintptr) (done bool)
	buffers net.Buffers
	n       int
	err     error
}

// result returns what has come of the call, and forgets the rest.
func (a *attempt) result(err error) (int, error) {
	n := max(a.n, 0)
	if err != nil {
		err = gone(err)
	} else {
		err = a.err
	}
	a.buffers, a.n, a.err = nil, 0, nil
	return n, err
}

// Reader returns a reader of the same file that makes cheaper system calls, for one goroutine at a time: if r is an open file that does not block, else r.
// Deadlines and closing act on it as on the file.
func Reader(r *os.File) io.Reader {
	conn := raw(r)
	if conn == nil {
		return r
	}
	in := &reader{attempt: attempt{conn: conn}}
	in.once = func(fd uintptr) bool {
		for {
			if in.n, in.err = read(fd, in.buffers[0]); !errors.Is(in.err, unix.EINTR) {
				return !errors.Is(in.err, unix.EAGAIN)
			}
		}
	}
	return in
}

type reader struct {
	attempt
	buffer [1][]byte // attempt.buffers
}

func (r *reader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	r.buffer[0] = b
	r.buffers = r.buffer[:]
	n, err := r.result(r.conn.Read(r.once))
	r.buffer[0] = nil
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Writer writes to a file what it takes without waiting. It is not safe for concurrent use.
type Writer struct{ attempt }

// NewWriter returns a Writer for what implements [syscall.Conn] and does not block, else nil.
func NewWriter(file any) *Writer {
	conn := raw(file)
	if conn == nil {
		return nil
	}
	w := &Writer{attempt{conn: conn}}
	w.once = func(fd uintptr) bool {
		w.n, w.err = write(fd, w.buffers)
		return true
	}
	return w
}

// Write writes buffers and takes out of them what it has written. The error is ErrWouldWait if there is something left.
func (w *Writer) Write(buffers *net.Buffers) (int64, error) {
	w.buffers = *buffers
	n, err := w.result(w.conn.Write(w.once))
	for left := n; len(*buffers) > 0; {
		first := (*buffers)[0]
		if left < len(first) {
			(*buffers)[0] = first[left:]
			break
		}
		left -= len(first)
		*buffers = (*buffers)[1:]
	}
	if err == nil && len(*buffers) > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		err = ErrWouldWait
	}
	return int64(n), err
}
