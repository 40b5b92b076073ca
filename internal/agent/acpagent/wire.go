package acpagent

import (
	"bytes"
	"errors"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// wireLog keeps every line of the connection, up to the bound of what the agent may send. Only the
// connection calls record; everything else is used when the connection has ended.
type wireLog struct {
	lines  *record.Lines
	now    func() time.Time
	bound  int64
	limits *limits
	// received counts the bytes that the agent has sent. err is the first error of writing.
	received int64
	err      error
	// printed is the beginning of the agent's output that does not belong to the protocol.
	printed []byte
}

// wireLine is a line of acp.jsonl.
type wireLine struct {
	Time string `json:"time"`
	From string `json:"from"`
	Line string `json:"line"`
}

// record implements [acp.Options].Record.
func (w *wireLog) record(dir acp.Direction, line []byte) {
	from := "client"
	if dir == acp.FromAgent {
		from = "agent"
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) && len(w.printed) < program.TailBytes {
			w.printed = append(append(w.printed, line...), '\n')
		}
		if w.received += int64(len(line)); w.received > w.bound {
			w.limits.exceed(fault.Newf(fault.OutputLimit, "the agent sent more than %d bytes", w.bound))
			return
		}
	}
	if err := w.lines.Append(wireLine{w.now().UTC().Format(time.RFC3339Nano), from, string(line)}); err != nil &&
		w.err == nil {
		w.err = err
	}
}

// close closes the file, and returns the first error of writing it.
func (w *wireLog) close() error { return errors.Join(w.err, w.lines.Close()) }
