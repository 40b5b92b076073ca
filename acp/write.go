package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// put queues a message. sent is called once, when the message is written or never will be, unless
// the line is withdrawn. A failed write does not end the connection, because earlier messages may
// still be answered: the end of the agent's stdout does.
func (c *Conn) put(m jsonrpc.Message, sent func(error)) *jsonrpc.Line {
	line := jsonrpc.NewLine(m.Encode())
	line.Done = func(_ int, err error) { sent(writeError(err)) }
	if err := c.out.Put(line); err != nil {
		sent(writeError(err))
	}
	return line
}

// writeError returns the error that a caller gets for a message that was not written.
func writeError(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrLineTooLong) {
		return err
	}
	return fmt.Errorf("%w: it does not read: %w", ErrClosed, err)
}

// marshal returns a value as JSON. Unlike json.Marshal it leaves <, > and & as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
