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

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/durable"
	"github.com/evalrun/evalrun/sandbox"
)

// maxExtracted is how many bytes are kept of what one artifact or a verifier has left.
const maxExtracted = 1 << 30

// maxFiles is how many files.
const maxFiles = 10_000

var errTooMany = fmt.Errorf("more than %d files", maxFiles)

// errTooMuch says that what was left behind is too much to be kept.
var errTooMuch = fmt.Errorf("more than %d bytes", maxExtracted)

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

// extract copies a file or a folder that untrusted processes have left below a folder, through a filter if it is not nil. No link is followed out of it,
// and none is kept; what is not there is left out. What cannot be kept because of what they have left is an *agent.Fault.
func extract(below, rel, to string, exclude []string, filter func(io.Writer) io.WriteCloser) error {
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
	if err != nil {
		return nil //nolint:nilerr // not there, or a link that leads out
	}
	x := &extraction{left: maxExtracted, filter: filter}
	if info.Mode().IsRegular() {
		return x.file(root, rel, to)
	}
	if !info.IsDir() {
		return nil
	}
	folder, err := root.OpenRoot(rel)
	if err != nil {
		return unkept(rel, err)
	}
	defer func() { _ = folder.Close() }() // only read
	return fs.WalkDir(folder.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return unkept(path.Join(rel, p), err)
		case p != "." && excluded(p, exclude):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		return x.file(folder, p, filepath.Join(to, filepath.FromSlash(p)))
	})
}

func unkept(name string, err error) error {
	return &agent.Fault{Category: agent.FaultVerifier, Message: fmt.Sprintf("%s cannot be kept: %v", name, err)}
}

// extraction copies files until there are too many bytes.
type extraction struct {
	left   int64
	files  int
	filter func(io.Writer) io.WriteCloser
}

func (x *extraction) file(root *os.Root, name, to string) error {
	in, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place must not hold us up
	if errors.Is(err, fs.ErrPermission) {
		return nil // whoever left it did not want it to be kept
	} else if err != nil {
		return unkept(name, err)
	}
	if x.files++; x.files > maxFiles {
		return errors.Join(unkept(name, errTooMany), in.Close())
	}
	defer func() { _ = in.Close() }() // only read
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	info, err := in.Stat()
	if err != nil {
		return unkept(name, err)
	}
	err = durable.WriteFile(to, 0o600|info.Mode().Perm()&0o100, func(out io.Writer) error {
		through := io.WriteCloser(nopCloser{out})
		if x.filter != nil {
			through = x.filter(out)
		}
		n, err := io.Copy(through, io.LimitReader(in, x.left+1))
		if x.left -= n; x.left < 0 {
			err = errTooMuch
		}
		return errors.Join(err, through.Close())
	})
	if errors.Is(err, errTooMuch) {
		return unkept(name, errTooMuch)
	}
	return err
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
