package taskcache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// maxBytes is how many bytes the files of a folder may take.
const maxBytes = 8 << 30

// lfsHeader begins the text that Git LFS keeps in the place of a file.
const lfsHeader = "version https://git-lfs.github.com/spec/"

// write writes a folder's files into dir, which is empty.
func (r *repository) write(ctx context.Context, f *Fetched, dir string) (err error) {
	entries, err := r.list(ctx, f)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	w := &writer{root: root, left: maxBytes, links: map[string]string{}}
	var ids bytes.Buffer
	for _, e := range entries {
		ids.WriteString(e.id + "\n")
	}
	git := r.git()
	git.stdin = &ids
	if err := git.read(ctx, func(out io.Reader) error { return w.all(entries, out) }, "cat-file", "--batch"); err != nil {
		return err
	}
	return w.link(dir)
}

// writer writes files below a folder and nowhere else.
type writer struct {
	root  *os.Root
	left  int64
	links map[string]string
}

// all writes the output of git cat-file --batch: for each entry a line and the content.
func (w *writer) all(entries []entry, out io.Reader) error {
	in := bufio.NewReaderSize(out, 1<<16)
	for _, e := range entries {
		line, err := in.ReadString('\n')
		fields := strings.Fields(line)
		if err != nil || len(fields) != 3 || fields[0] != e.id || fields[1] != "blob" {
			return fmt.Errorf("git does not give the file %.200q: %.200q", e.name, strings.TrimSpace(line))
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || size < 0 {
			return fmt.Errorf("git has answered %.200q", line)
		}
		if w.left -= size; w.left < 0 {
			return fmt.Errorf("its files take more than %d bytes", int64(maxBytes))
		}
		if err := w.one(e, io.LimitReader(in, size), size); err != nil {
			return err
		}
		if _, err := in.Discard(1); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) one(e entry, content io.Reader, size int64) error {
	if e.mode == "120000" {
		if size > 4096 {
			return fmt.Errorf("the link %.200q is too long", e.name)
		}
		target, err := io.ReadAll(content)
		w.links[e.name] = string(target)
		return err
	}
	if dir := path.Dir(e.name); dir != "." {
		if err := w.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o644)
	if e.mode == "100755" {
		mode = 0o755
	}
	file, err := w.root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	begin := make([]byte, len(lfsHeader))
	n, err := io.ReadFull(content, begin)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	if err == nil && string(begin[:n]) == lfsHeader && size < 1024 {
		err = fmt.Errorf("%.200q is kept with Git LFS, which is not fetched; clone the repository with git-lfs and name the folder there",
			e.name)
	}
	if err == nil {
		_, err = file.Write(begin[:n])
	}
	if err == nil {
		_, err = io.Copy(file, content)
	}
	return errors.Join(err, file.Close())
}

// link makes the links, when all files exist. Each must lead to something in the folder.
func (w *writer) link(dir string) error {
	for name, target := range w.links {
		if path.IsAbs(target) || strings.ContainsRune(target, 0) {
			return fmt.Errorf("the link %.200q leads out of the folder, to %.200q", name, target)
		}
		if parent := path.Dir(name); parent != "." {
			if err := w.root.MkdirAll(parent, 0o755); err != nil {
				return err
			}
		}
		if err := w.root.Symlink(target, name); err != nil {
			return err
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for name, target := range w.links {
		to, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return fmt.Errorf("the link %.200q leads nowhere, to %.200q", name, target)
		}
		if rel, err := filepath.Rel(real, to); err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("the link %.200q leads out of the folder, to %.200q", name, target)
		}
	}
	return nil
}
