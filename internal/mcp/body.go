package mcp

import (
	"bytes"
	"io"
	"sync"
)

// maxScratch is the greatest length of a buffer that is used again. Up to this length a body is
// believed to be as long as announced.
const maxScratch = 1 << 20

// scratch are buffers for bodies of unknown length. Growing a new one for each would leave several
// times its length to the garbage collector.
var scratch = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readAll reads a body with an announced length; -1 if that is not known. It returns the part that
// was read with an error too.
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
