package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"

	"io"
)

// readBuffer is the size of the buffer in front of a stream: most lines are shorter.
const readBuffer = 128 << 10

// ErrTooLong is the error of [Reader.Next] for a line that is longer than allowed.
var ErrTooLong = errors.New("the line is too long")

// Reader reads lines up to a length.
type Reader struct {
	r   *bufio.Reader
	max int
}

// NewReader returns a reader of lines of at most maxLine bytes, their ends not counted.
func NewReader(r io.Reader, maxLine int) *Reader {
	return &Reader{bufio.NewReaderSize(r, readBuffer), maxLine}
}

// Next returns the next line without its end, which the last one may lack. The caller owns the
// line. The error is io.EOF when there are no more.
func (r *Reader) Next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if len(line)+len(bytes.TrimRight(part, "\r\n")) > r.max {
			return nil, ErrTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(line) > 0:
			return bytes.TrimRight(line, "\r\n"), nil // the error comes again
		default:
			return nil, err
		}
	}
}
