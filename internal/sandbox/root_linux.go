package sandbox

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rooted reports whether the root of the space is a folder that its processes may write to.
func (l layout) rooted() bool { return l["/"].kind == writable }

// protectRoot sees to it that in a root that may be written to, programs and settings stay those of
// the system: nothing there can be replaced for the processes that come later, such as a verifier.
// What is mounted cannot be replaced, so links become mounts.
func (l layout) protectRoot() {
	if !l.rooted() {
		return
	}
	for at, m := range maps.Clone(l) {
		if m.kind != link || l.above(at) != "" {
			continue
		}
		to := m.from
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		if real, err := filepath.EvalSymlinks(to); err == nil {
			l[at] = mount{bind, real}
		} else {
			delete(l, at)
		}
	}
	if _, ok := l["/etc"]; !ok {
		l["/etc"] = mount{kind: folder}
	}
	l[insideRun] = mount{kind: fresh}
}

// closed are the folders that would be folders of the root. In a root that may be written to each
// is a file system of its own, read-only in the end.
func (l layout) closed() (out []string) {
	if !l.rooted() {
		return nil
	}
	for _, inside := range slices.Sorted(maps.Keys(l)) {
		if at := l.above(inside); l[inside].kind == folder && (at == "" || l[at].kind != folder) {
			out = append(out, inside)
		}
	}
	return out
}

// sealArgs are the options that make read-only what may not be written to, after everything has
// been put in its place.
func (l layout) sealArgs() (args []string) {
	sealed := []string{"/"}
	if l.rooted() {
		sealed = l.closed()
	}
	for _, dir := range sealed {
		args = append(args, "--remount-ro", dir)
	}
	return args
}

// makeRoom makes the folders and files that others are mounted on, in the folders that processes
// before may have written to. They may have left links there, which bwrap would follow while it
// sees all of this machine.
func (l layout) makeRoom() error {
	var err error
	for _, inside := range append(slices.Sorted(maps.Keys(l)), "/proc", "/dev") {
		at := l.above(inside)
		if at == "" {
			at = "/"
		}
		if inside != "/" && l[at].kind == writable {
			err = errors.Join(err, l[inside].makeRoom(l[at].from, strings.TrimPrefix(strings.TrimPrefix(inside, at), "/")))
		}
	}
	return err
}

// makeRoom makes room for a mount at a path below a folder.
func (m mount) makeRoom(below, rel string) error {
	root, err := os.OpenRoot(below)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	for i, c := range rel {
		if c == '/' {
			if err := makeFolder(root, rel[:i]); err != nil {
				return err
			}
		}
	}
	switch m.kind {
	case link:
		return root.RemoveAll(rel)
	case bind, writable, masked:
		if info, err := os.Stat(m.from); m.kind != masked && (err != nil || info.IsDir()) {
			break // what is not there is bwrap's to say
		}
		if there, err := root.Lstat(rel); err == nil && there.Mode().IsRegular() {
			return nil
		}
		if err := root.RemoveAll(rel); err != nil {
			return err
		}
		f, err := root.OpenFile(rel, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return makeFolder(root, rel)
}

// makeFolder makes a folder in the place of whatever else is there.
func makeFolder(root *os.Root, rel string) error {
	if there, err := root.Lstat(rel); err == nil && there.IsDir() {
		return nil
	}
	if err := root.RemoveAll(rel); err != nil {
		return err
	}
	return root.Mkdir(rel, 0o755)
}
