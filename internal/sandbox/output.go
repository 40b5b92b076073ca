package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// interactive is the stdout of an interactive process.
type interactive struct {
	mu    sync.Mutex // held while r is read, so that drain keeps the order
	r     *remainder // of a pipe
	rest  []byte     // read ahead when the process had ended
	ended bool
}

// maxRest is as much as a pipe can hold by default. It bounds what is read if an escaped process
// goes on writing.
const maxRest = 1 << 20

func (i *interactive) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		return i.r.Read(p)
	}
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// drain reads the rest of the pipe, so that the pipe can be closed however slow the reader is. A
// deadline must be set.
func (i *interactive) drain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rest, _ = io.ReadAll(i.r) // a pipe that can be read cannot fail
	i.ended = true
}

// remainder reads a pipe to its end. After its deadline it reads only what is there at the moment,
// and no more than left bytes. When a process has ended, all of its output is in the pipe. So
// nothing of it is lost however slow the reader is, and an escaped process with a copy of the pipe
// keeps nobody waiting.
type remainder struct {
	r    io.Reader // reads pipe, and fails at its deadline
	pipe *os.File
	left int
}

func (r *remainder) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, err := r.pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := raw.Control(func(fd uintptr) {
		n, err = syscall.Read(int(fd), p[:min(len(p), r.left)]) // does not block: the runtime has made our end so
	}); cerr != nil {
		return 0, cerr
	}
	if n <= 0 || err != nil { // EAGAIN
		return 0, io.EOF
	}
	r.left -= n
	return n, nil
}

// tail passes on what is written and keeps the end of it.
type tail struct {
	w   io.Writer // may be nil
	mu  sync.Mutex
	end []byte
}

// maxTail is how much of an output an error carries.
const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.end = append(t.end, p[max(0, len(p)-maxTail):]...)
	t.end = t.end[max(0, len(t.end)-maxTail):]
	t.mu.Unlock()
	if t.w == nil {
		return len(p), nil
	}
	return t.w.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}

// feed writes stdin. The write fails if the process ends or closes its stdin before it has read
// everything, or if Wait closes our end. Neither is an error.
func (p *Process) feed(data []byte) {
	_, _ = p.stdin.Write(data)
	_ = p.stdin.Close()
}

// buffers hold the outputs that are read; most processes print less than one holds.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// copyOut copies one output of the process. After an error of the writer it goes on reading, so
// that a process which wants to print before it ends is not stuck.
func (p *Process) copyOut(w io.Writer, f *os.File) {
	r := &remainder{f, f, maxRest}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buf := *pooled
	for {
		n, err := r.Read(buf)
		if n > 0 && w != nil {
			if _, werr := w.Write(buf[:n]); werr != nil {
				p.failed <- werr
				w = nil
			}
		}
		if err != nil {
			return
		}
	}
}

// outputs are the pipes that we read.
func (p *Process) outputs() []*os.File {
	out := []*os.File{p.stdout, p.stderr}
	if p.init != nil {
		out = append(out, p.init.progress, p.init.log)
	}
	return out
}

func (p *Process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.Close() // nil or closed already
	}
	if p.init != nil {
		p.init.close()
	}
}
