package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// DefaultMaxFile is the largest size of a file that an agent can read or write.
const DefaultMaxFile = 10 << 20

// Files serves fs/read_text_file and fs/write_text_file in some folders and nowhere else, wherever
// links may point.
type Files struct {
	roots    roots
	maxSize  int64
	readOnly bool
}

// FilesOptions are the settings of Files.
type FilesOptions struct {
	Roots    []Root
	ReadOnly bool  // fs/write_text_file is neither advertised nor served
	MaxSize  int64 // 0 means DefaultMaxFile
}

// NewFiles opens the folders. Close them with [Files.Close].
func NewFiles(o FilesOptions) (*Files, error) {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxFile
	}
	opened, err := openRoots(o.Roots)
	if err != nil {
		return nil, err
	}
	return &Files{opened, o.MaxSize, o.ReadOnly}, nil
}

// Close closes the folders.
func (f *Files) Close() error { return f.roots.close() }

type readFile struct {
	Path  string `json:"path"`
	Line  int    `json:"line"`  // the first line, counted from 1
	Limit *int   `json:"limit"` // the number of lines
}

type writeFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (f *Files) read(_ context.Context, p readFile) (any, error) {
	if p.Line < 0 || p.Limit != nil && *p.Limit < 0 {
		return nil, invalidParams("line and limit cannot be negative")
	}
	file, err := f.open(p.Path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, f.maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > f.maxSize:
		return nil, invalidParams(fmt.Sprintf("%s is larger than %d bytes", p.Path, f.maxSize))
	case !utf8.Valid(data):
		return nil, invalidParams(p.Path + " is not a text file in UTF-8")
	}
	return map[string]string{"content": lines(string(data), p.Line, p.Limit)}, nil
}

// lines returns limit lines of text from line first on.
func lines(text string, first int, limit *int) string {
	for ; first > 1 && text != ""; first-- {
		_, text, _ = strings.Cut(text, "\n")
	}
	if limit == nil {
		return text
	}
	end := 0
	for range *limit {
		n := strings.IndexByte(text[end:], '\n')
		if n < 0 {
			return text
		}
		end += n + 1
	}
	return text[:end]
}

func (f *Files) write(_ context.Context, p writeFile) (any, error) {
	if int64(len(p.Content)) > f.maxSize {
		return nil, invalidParams(fmt.Sprintf("a file cannot be larger than %d bytes", f.maxSize))
	}
	file, err := f.open(p.Path, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	// Write in place, as an editor would: the file keeps its mode and its links. It is the agent's,
	// not ours.
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteString(p.Content)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// open opens a regular file.
func (f *Files) open(path string, flag int) (*os.File, error) {
	root, name, err := f.roots.find(path)
	if err != nil {
		return nil, err
	}
	file, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o666) // a named pipe would be waited for
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &rpcError{CodeResourceMissing, "there is no " + path}
	} else if err != nil {
		return nil, invalidParams(path + ": " + reason(err))
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = invalidParams(path + " is not a regular file")
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Root is a folder that an agent may use. If the agent has a file tree of its own, its paths are
// not ours.
type Root struct {
	// Path is the agent's name for the folder, Host the path on this machine; empty if that is the
	// same. Both are absolute.
	Path, Host string
}

// roots are the folders in which an agent may do something.
type roots []root

type root struct {
	*os.Root
	paths []string // as it was given and, unless it is somewhere else, without symbolic links
}

func openRoots(folders []Root) (opened roots, err error) {
	defer func() {
		if err != nil {
			_ = opened.close()
			opened = nil
		}
	}()
	for _, folder := range folders {
		host := folder.Host
		if host == "" {
			host = folder.Path
		}
		if !filepath.IsAbs(folder.Path) || !filepath.IsAbs(host) {
			return opened, fmt.Errorf("the folder %q for an agent's files is not an absolute path", folder.Path)
		}
		dir, err := os.OpenRoot(host)
		if err != nil {
			return opened, err
		}
		r := root{dir, []string{filepath.Clean(folder.Path)}}
		opened = append(opened, r)
		if folder.Host != "" {
			continue // the agent cannot know the links on the way to it
		}
		real, err := filepath.EvalSymlinks(host)
		if err != nil {
			return opened, err
		}
		opened[len(opened)-1].paths = append(r.paths, real)
	}
	return opened, nil
}

func (r roots) close() (err error) {
	for _, dir := range r {
		err = errors.Join(err, dir.Close())
	}
	return err
}

// find returns the folder that a path is in, and the path in it. os.Root makes sure that no link
// leads out.
func (r roots) find(path string) (*os.Root, string, error) {
	if !filepath.IsAbs(path) {
		return nil, "", invalidParams(fmt.Sprintf("%q is not an absolute path", path))
	}
	for _, dir := range r {
		for _, base := range dir.paths {
			if name, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(name) {
				return dir.Root, name, nil
			}
		}
	}
	return nil, "", invalidParams(path + " is outside the workspace")
}

// reason returns the reason of an error of the file system, without the name of the call and the
// path in it.
func reason(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}
