package mcp

import (
	"bytes"
	"io"
	"sync"
)

// maxScratch is how long a buffer may be that is used again, and up to which length a body is
// believed to be as long as is said before it has come.
const maxScratch = 1 << 20

// scratch are buffers for bodies whose length is not known: growing a new one for each would leave
// several times its length to the garbage collector.
var scratch = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readAll reads a body that is said to have a length; -1 if that is not known. The part that was
// read comes with an error too.
func readAll(r io.Reader, length int64) ([]byte, error) {
	if length >= 0 && length <= maxScratch {
		b := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
		_, err := b.ReadFrom(r)
		return b.Bytes(), err
	}
	b := scratch.Get().(*bytes.Buffer)
	_, err := b.ReadFrom(r)
	body := bytes.Clone(b.Bytes())
	if b.Cap() <= maxScratch {
		b.Reset()
		scratch.Put(b)
	}
	return body, err
}
