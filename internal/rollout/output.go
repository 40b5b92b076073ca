package rollout

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// limitedWriter writes a limited number of bytes and drops the rest.
type limitedWriter struct {
	w    io.Writer
	left int
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > l.left {
		p = p[:l.left]
	}
	l.left -= len(p)
	if len(p) == 0 {
		return n, nil
	}
	_, err := l.w.Write(p)
	return n, err
}

// lockedWriter lets two streams write to one file.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// maxLog is how much output of a verifier or a collecting command is kept.
const maxLog = 4 << 20

// runLogged runs a command and keeps its redacted output.
func (v *verifier) runLogged(ctx context.Context, c sandbox.Command, path string) (exit sandbox.Exit, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return exit, err
	}
	err = durable.WriteFile(path, 0o600, func(out io.Writer) error {
		limited := &limitedWriter{w: out, left: maxLog}
		through := io.WriteCloser(nopCloser{limited})
		if filter := v.held.run.filter(); filter != nil {
			through = filter(limited)
		}
		both := &lockedWriter{w: through}
		c.Stdout, c.Stderr = both, both
		var runErr error
		exit, runErr = sandbox.Run(ctx, c)
		return errors.Join(runErr, through.Close())
	})
	return exit, err
}
