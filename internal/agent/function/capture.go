package function

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/record"
)

// errOutputLimit ends an agent that prints more than it may.
var errOutputLimit = errors.New("more output than limits.outputBytes")

// capture holds the output of an agent while it runs.
type capture struct {
	limit  int64
	stdout *stdoutWriter
	stderr *program.Log
}

// capture opens the streams of a segment.
func (f *function) capture(seg agent.Segment) *capture {
	c := &capture{limit: seg.OutputBytes,
		stderr: program.OpenLog(filepath.Join(seg.Dir, record.FileStderr), f.opts.Redact)}
	c.stdout = &stdoutWriter{left: c.limit, keep: f.settings.Output != OutputFile}
	if f.settings.Output == OutputLastLine || f.settings.Output == OutputFile {
		c.stdout.log = program.OpenLog(filepath.Join(seg.Dir, record.FileStdout), f.opts.Redact)
	}
	return c
}

// close closes the logs. Its error is that of the first write which failed.
func (c *capture) close() error {
	err := c.stderr.Close()
	if c.stdout.log != nil {
		err = errors.Join(err, c.stdout.log.Close())
	}
	return err
}

// stdoutWriter counts stdout and keeps it up to the limit.
type stdoutWriter struct {
	left int64
	keep bool
	buf  []byte
	log  *program.Log // nil if there is none
}

func (w *stdoutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		w.buf = nil
		return 0, errOutputLimit
	}
	w.left -= int64(len(p))
	if w.keep {
		w.buf = append(w.buf, p...)
	}
	if w.log != nil {
		return w.log.Write(p)
	}
	return len(p), nil
}

// writeFile writes a file through the redaction.
func (f *function) writeFile(path string, content io.Reader) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if f.opts.Redact == nil {
		_, err = io.Copy(file, content)
		return err
	}
	w := f.opts.Redact(file)
	_, err = io.Copy(w, content)
	return errors.Join(err, w.Close())
}

// redactFile replaces a file that the agent has written by one that has passed the redaction.
func (f *function) redactFile(path string) error {
	file, err := record.OpenRegular(path)
	if file == nil || err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	if err := f.writeFile(path+".tmp", file); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
