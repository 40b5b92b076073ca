package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/evalrun/evalrun/internal/durable"
)

// maxExtracted is how many bytes of one artifact, or of a verifier's files, are kept.
const maxExtracted = 1 << 30

// maxFiles is how many files are kept of it.
const maxFiles = 10_000

// CopyOut copies files that untrusted processes have left, up to a limit. It follows no link out of
// its folder and keeps no link. Files that cannot be copied are noted and left out, so that no
// agent escapes its verdict by the files that it leaves.
type CopyOut struct {
	// exclude has patterns of paths that are not copied. filter, if not nil, filters the contents.
	exclude []string
	filter  func(io.Writer) io.WriteCloser

	left  int64
	files int
	// locked holds functions that take away again the rights that unlock has given us.
	locked []func()
	// Notes lists the files that were left out.
	Notes []string
	// Found says that there was something to copy.
	Found bool
}

func NewCopyOut(exclude []string, filter func(io.Writer) io.WriteCloser) *CopyOut {
	return &CopyOut{exclude: exclude, filter: filter, left: maxExtracted}
}

// maxNotes is how many notes one CopyOut makes.
const maxNotes = 10

// Note records that a part was left out; "." means all of it.
func (x *CopyOut) Note(part string, reason any) {
	text := fmt.Sprint(reason)
	if part != "." {
		text = Shorten(part) + ": " + text
	}
	switch {
	case len(x.Notes) < maxNotes:
		x.Notes = append(x.Notes, text)
	case len(x.Notes) == maxNotes:
		x.Notes = append(x.Notes, "more was left out, which is not listed")
	}
}

// Copy copies the file or folder at the path rel below a folder. An error means that evalrun itself
// has failed.
func (x *CopyOut) Copy(below, rel, to string) error {
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
	defer x.lock()
	x.unlock(root, ".", folderRights)
	for i, c := range rel {
		if c == '/' {
			x.unlock(root, rel[:i], folderRights)
		}
	}
	info, err := root.Stat(rel) // a link within the folder may lead to it
	if err != nil {
		if _, there := root.Lstat(rel); there == nil {
			x.Found = true
			x.Note(".", "a link that leads to nothing, or out of its folder")
		}
		return nil //nolint:nilerr // not there, or noted
	}
	x.Found = true
	switch {
	case info.Mode().IsRegular():
		return x.file(root, rel, ".", to)
	case !info.IsDir():
		x.Note(".", "neither a file nor a folder")
		return nil
	}
	x.unlock(root, rel, folderRights)
	folder, err := root.OpenRoot(rel)
	if err != nil {
		x.Note(".", reasonOf(err))
		return nil
	}
	defer func() { _ = folder.Close() }() // only read
	defer x.lock()                        // lock needs the open folder
	return fs.WalkDir(folder.FS(), ".", func(p string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			x.Note(p, reasonOf(err))
			return fs.SkipDir
		case p != "." && excluded(p, x.exclude):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			x.unlock(folder, p, folderRights)
			return nil
		case !entry.Type().IsRegular():
			return nil
		case x.files >= maxFiles:
			x.Note(p, fmt.Sprintf("more than %d files", maxFiles))
			return fs.SkipAll
		}
		return x.file(folder, p, p, filepath.Join(to, filepath.FromSlash(p)))
	})
}

// The rights that are needed to read a folder, and a file.
const (
	folderRights fs.FileMode = 0o500
	fileRights   fs.FileMode = 0o400
)

// unlock gives us rights to a file or folder of ours for the time of the copy. If it still cannot
// be read, a note is made.
func (x *CopyOut) unlock(root *os.Root, name string, rights fs.FileMode) {
	info, err := root.Stat(name)
	if os.Geteuid() == 0 || err != nil || info.Mode()&rights == rights {
		return
	}
	if root.Chmod(name, info.Mode()|rights) == nil {
		x.locked = append(x.locked, func() { _ = root.Chmod(name, info.Mode()) }) // only tests may miss it
	}
}

// lock takes the rights away again, innermost first.
func (x *CopyOut) lock() {
	for _, f := range slices.Backward(x.locked) {
		f()
	}
	x.locked = nil
}

// reasonOf returns the text of an error without its path, which the note has already.
func reasonOf(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

var errTooMuch = fmt.Errorf("too large: %d MiB are kept", maxExtracted>>20)

// file copies one file of a folder. Notes call it by the label.
func (x *CopyOut) file(root *os.Root, name, label, to string) error {
	x.unlock(root, name, fileRights)
	in, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place must not hold us up
	if err != nil {
		x.Note(label, reasonOf(err))
		return nil
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	switch {
	case err != nil:
		x.Note(label, reasonOf(err))
		return nil
	case info.Size() > x.left: // a sparse file may have a size and no content
		x.Note(label, errTooMuch)
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
	if errors.Is(err, errTooMuch) || IsBadName(err) {
		x.Note(label, reasonOf(err))
		return nil
	}
	return err
}

// IsBadName reports whether something cannot be written because of its name: it is too long, or
// another file is where its folder should be.
func IsBadName(err error) bool {
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

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Shorten shortens a message that contains a very long path.
func Shorten(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2]+" … "+s[len(s)-most/2:], "")
}
