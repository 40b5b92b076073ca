package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// errOutputLimit ends an agent that prints more than it may.
var errOutputLimit = errors.New("more output than limits.outputBytes")

// capture holds what an agent prints while it runs.
type capture struct {
	limit   int64
	stdout  *stdoutWriter
	stderr  io.Writer
	log     *logFile // stderr.log
	closers []io.Closer
}

// capture opens the streams of a segment. No file is made before there is something to write.
func (f *function) capture(seg Segment) *capture {
	c := &capture{limit: seg.OutputBytes}
	if c.limit <= 0 {
		c.limit = defaultOutputBytes
	}
	c.log = &logFile{path: filepath.Join(seg.Dir, FileStderr)}
	c.stderr = f.redacted(c, c.log)
	c.stdout = &stdoutWriter{left: c.limit, keep: f.entry.Output != OutputFile}
	if f.entry.Output == OutputLastLine || f.entry.Output == OutputFile {
		c.stdout.log = f.redacted(c, &logFile{path: filepath.Join(seg.Dir, FileStdout)})
	}
	return c
}

// redacted puts the redaction before a log, and has both closed at the end.
func (f *function) redacted(c *capture, log *logFile) io.Writer {
	if f.opts.Redact == nil {
		c.closers = append(c.closers, log)
		return log
	}
	w := f.opts.Redact(log)
	c.closers = append(c.closers, w, log)
	return w
}

// close flushes the logs. Its error is that of the first write which failed.
func (c *capture) close() error {
	var errs []error
	for _, closer := range c.closers {
		errs = append(errs, closer.Close())
	}
	return errors.Join(errs...)
}

// stdoutWriter counts stdout and keeps it up to the limit.
type stdoutWriter struct {
	left int64
	keep bool
	buf  []byte
	log  io.Writer // nil if there is none
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
	file, err := openRegular(path)
	if file == nil || err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	if err := f.writeFile(path+".tmp", file); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// openRegular opens a file that an agent may have written: nil if there is none, or something that is not a plain file.
func openRegular(path string) (*os.File, error) {
	// O_NONBLOCK: a FIFO in its place must not hold us up.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close() // not read
		return nil, err
	}
	return file, nil
}

// readRegular reads up to most bytes of such a file.
func readRegular(path string, most int64) ([]byte, error) {
	file, err := openRegular(path)
	if file == nil || err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	return io.ReadAll(io.LimitReader(file, most))
}
