package runner

import (
	"fmt"
	"io"

	"github.com/evalrun/evalrun/internal/redact"
)

// redactedWriter takes secrets out of the text that is written, which comes in whole lines.
type redactedWriter struct {
	w   io.Writer
	red *redact.Redactor
}

// Write implements io.Writer.
func (w redactedWriter) Write(p []byte) (int, error) {
	_, err := w.w.Write(w.red.Bytes(p))
	return len(p), err
}

func (o Options) notice(format string, args ...any) {
	if o.Notice != nil {
		o.Notice(fmt.Sprintf(format, args...))
	}
}
