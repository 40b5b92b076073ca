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

// protectRoot protects the programs and settings of the system in a root that may be written to.
// Nothing there can be replaced for the processes that come later, such as a verifier. A mount
// cannot be replaced, so links become mounts.
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
// is a file system of its own, which becomes read-only in the end.
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

// sealArgs are the options that make places read-only after everything has been put there.
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

// makeRoom makes the folders and files that others are mounted on, in the folders that earlier
// processes may have written to. They may have left links there, which bwrap would follow while it
// sees all of this machine. A root that is not mounted yet is left to the process that mounts it.
func (l layout) makeRoom() error {
	var err error
	for below, rooms := range l.rooms() {
		if below != unmounted {
			err = errors.Join(err, makeRooms(below, rooms))
		}
	}
	return err
}

// unmounted is the source of a root that is mounted later.
const unmounted = "\x00root"

// rooms are the places for which room is made, by the folder of this machine in which they are.
func (l layout) rooms() map[string][]room {
	out := map[string][]room{}
	for _, inside := range append(slices.Sorted(maps.Keys(l)), "/proc", "/dev") {
		at := l.above(inside)
		if at == "" {
			at = "/"
		}
		if inside != "/" && l[at].kind == writable {
			below := l[at].from
			out[below] = append(out[below], room{strings.TrimPrefix(strings.TrimPrefix(inside, at), "/"), l[inside].room()})
		}
	}
	return out
}

// room is the kind of room that a mount needs at its place.
func (m mount) room() roomKind {
	switch m.kind {
	case link:
		return roomNothing
	case masked:
		return roomFile
	case bind, writable:
		if info, err := os.Stat(m.from); err == nil && !info.IsDir() { // bwrap reports what is not there
			return roomFile
		}
	}
	return roomFolder
}

func makeRooms(below string, rooms []room) error {
	root, err := os.OpenRoot(below)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	for _, r := range rooms {
		if err := r.make(root); err != nil {
			return err
		}
	}
	return nil
}

// make makes room for a mount.
func (r room) make(root *os.Root) error {
	for i, c := range r.Path {
		if c == '/' {
			if err := makeFolder(root, r.Path[:i]); err != nil {
				return err
			}
		}
	}
	switch r.Kind {
	case roomNothing:
		return root.RemoveAll(r.Path)
	case roomFile:
		if there, err := root.Lstat(r.Path); err == nil && there.Mode().IsRegular() {
			return nil
		}
		if err := root.RemoveAll(r.Path); err != nil {
			return err
		}
		f, err := root.OpenFile(r.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return makeFolder(root, r.Path)
}

// makeFolder makes a folder and replaces anything else that is there.
func makeFolder(root *os.Root, rel string) error {
	if there, err := root.Lstat(rel); err == nil && there.IsDir() {
		return nil
	}
	if err := root.RemoveAll(rel); err != nil {
		return err
	}
	return root.Mkdir(rel, 0o755)
}
