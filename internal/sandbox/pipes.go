package sandbox

import (
	"io"
	"os"
	"sync"
)

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
