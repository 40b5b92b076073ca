package engine

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

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// maxExtracted is how many bytes are kept of what one artifact or a verifier has left.
const maxExtracted = 1 << 30

// maxFiles is how many files.
const maxFiles = 10_000

// bindOf finds the bind that an inside path lies in, and the rest of the path. host is empty if it lies in none.
func bindOf(binds []sandbox.Bind, inside string) (host, rel string) {
	inside = path.Clean(inside)
	best := ""
	for _, b := range binds {
		below := b.Inside == "/" || inside == b.Inside || strings.HasPrefix(inside, b.Inside+"/")
		if below && len(b.Inside) > len(best) {
			best, host = b.Inside, b.Host
		}
	}
	return host, strings.TrimPrefix(strings.TrimPrefix(inside, best), "/")
}

// extraction copies what untrusted processes have left, through a filter if it is not nil, until it is too much. No link is followed out of its
// folder, and none is kept. What cannot be kept because of what they have left is noted and left out: nobody escapes a verdict that way.
type extraction struct {
	exclude []string
	filter  func(io.Writer) io.WriteCloser

	left  int64
	files int
	notes []string
	// found says that there was something to copy.
	found bool
}

func newExtraction(exclude []string, filter func(io.Writer) io.WriteCloser) *extraction {
	return &extraction{exclude: exclude, filter: filter, left: maxExtracted}
}

// maxNotes is how many notes an extraction makes.
const maxNotes = 10

// note says that a part was left out, or with "." all of it.
func (x *extraction) note(part string, reason any) {
	text := fmt.Sprint(reason)
	if part != "." {
		text = cutMiddle(part) + ": " + text
	}
	switch {
	case len(x.notes) < maxNotes:
		x.notes = append(x.notes, text)
	case len(x.notes) == maxNotes:
		x.notes = append(x.notes, "more was left out, which is not listed")
	}
}

// copy copies a file or a folder below a folder. The error is for what evalrun could not do.
func (x *extraction) copy(below, rel, to string) error {
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
		if _, there := root.Lstat(rel); there == nil {
			x.found = true
			x.note(".", "a link that leads to nothing, or out of its folder")
		}
		return nil //nolint:nilerr // not there, or noted
	}
	x.found = true
	switch {
	case info.Mode().IsRegular():
		return x.file(root, rel, ".", to)
	case !info.IsDir():
		x.note(".", "neither a file nor a folder")
		return nil
	}
	folder, err := root.OpenRoot(rel)
	if err != nil {
		x.note(".", reasonOf(err))
		return nil
	}
	defer func() { _ = folder.Close() }() // only read
	return fs.WalkDir(folder.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			x.note(p, reasonOf(err))
			return fs.SkipDir
		case p != "." && excluded(p, x.exclude):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		case x.files >= maxFiles:
			x.note(p, fmt.Sprintf("more than %d files", maxFiles))
			return fs.SkipAll
		}
		return x.file(folder, p, p, filepath.Join(to, filepath.FromSlash(p)))
	})
}

// reasonOf is an error without the path, which a note has already.
func reasonOf(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

var errTooMuch = fmt.Errorf("too large: %d MiB are kept", maxExtracted>>20)

// file copies one file of a folder; the label is what notes call it.
func (x *extraction) file(root *os.Root, name, label, to string) error {
	in, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place must not hold us up
	if err != nil {
		x.note(label, reasonOf(err))
		return nil
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	switch {
	case err != nil:
		x.note(label, reasonOf(err))
		return nil
	case info.Size() > x.left: // also one that has only a size, and no content
		x.note(label, errTooMuch)
		return nil
	}
	x.files++
	err = os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
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
	}
	if errors.Is(err, errTooMuch) || namedBadly(err) {
		x.note(label, reasonOf(err))
		return nil
	}
	return err
}

// namedBadly reports whether something cannot be written because of its name: it is too long, or another file is where its folder should be.
func namedBadly(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
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
