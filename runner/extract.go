package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/evalrun/evalrun/durable"
	"github.com/evalrun/evalrun/sandbox"
)

// maxExtracted is how many bytes are kept of what one artifact or a verifier has left.
const maxExtracted = 1 << 30

// errTooMuch says that what was left behind is too large to be kept.
var errTooMuch = fmt.Errorf("larger than %d bytes", maxExtracted)

// bindOf finds the bind of a space that an inside path lies in, and the rest of the path.
func bindOf(space *sandbox.Space, inside string) (host, rel string, ok bool) {
	inside = path.Clean(inside)
	best := ""
	for _, b := range space.Binds {
		if (inside == b.Inside || strings.HasPrefix(inside, b.Inside+"/")) && len(b.Inside) > len(best) {
			best, host, ok = b.Inside, b.Host, true
		}
	}
	return host, strings.TrimPrefix(strings.TrimPrefix(inside, best), "/"), ok
}

// extract copies a file or a folder that untrusted processes have left below a folder. No link is followed out of it, and none is kept; what is not there
// is left out.
func extract(below, rel, to string, exclude []string) error {
	root, err := os.OpenRoot(below)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	if rel == "" {
		rel = "."
	}
	info, err := root.Stat(rel) // a link within the folder may lead to it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	left := int64(maxExtracted)
	if info.Mode().IsRegular() {
		return extractFile(root, rel, to, &left)
	}
	if !info.IsDir() {
		return nil
	}
	folder, err := root.OpenRoot(rel)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // only read
	return fs.WalkDir(folder.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != "." && excluded(p, exclude):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		return extractFile(folder, p, filepath.Join(to, filepath.FromSlash(p)), &left)
	})
}

// excluded reports whether a pattern is for the path or its last part.
func excluded(p string, patterns []string) bool {
	for _, pattern := range patterns {
		for _, candidate := range []string{p, path.Base(p)} {
			if ok, err := path.Match(strings.TrimSuffix(pattern, "/"), candidate); ok && err == nil {
				return true
			}
		}
	}
	return false
}

func extractFile(root *os.Root, name, to string, left *int64) error {
	in, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place must not hold us up
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(to, 0o600, func(out io.Writer) error {
		n, err := io.Copy(out, io.LimitReader(in, *left+1))
		if *left -= n; *left < 0 {
			return errTooMuch
		}
		return err
	})
}

// keepFolder keeps what a verifier has left, through the redaction.
func (w *worker) keepFolder(from, to string) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	left := int64(maxExtracted)
	return fs.WalkDir(root.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		in, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }() // only read
		target := filepath.Join(to, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return durable.WriteFile(target, 0o600, func(out io.Writer) error {
			through := io.WriteCloser(nopCloser{out})
			if w.plan.redact != nil {
				through = w.plan.redact.Writer(out)
			}
			n, err := io.Copy(through, io.LimitReader(in, left+1))
			if left -= n; left < 0 {
				err = errTooMuch
			}
			return errors.Join(err, through.Close())
		})
	})
}

// limitedWriter lets so many bytes through and drops the rest.
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

// lockedWriter is for two streams that go to one file.
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
