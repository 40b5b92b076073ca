package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kind is the kind of a place in a space.
type kind int

const (
	bind     kind = iota // a file or folder of this machine, read-only
	writable             // the same, writable
	link                 // a symbolic link
	folder               // a folder of the root, read-only in the end
	fresh                // an empty folder that can be written to and is lost with the space
	sticky               // the same, for all users
	masked               // a file that cannot be read
	absent               // nothing, in a folder of the root
)

// mount is a place in a space. from is the resolved path on this machine, or the target of a link.
type mount struct {
	kind kind
	from string
}

// layout is the file system of a space, by inside path.
type layout map[string]mount

// files lays out the space for a process with an environment. The executable is that of the init.
func (s *Config) files(executable string, env []string) (layout, error) {
	l := layout{"/tmp": {kind: sticky}, "/var/tmp": {kind: sticky}, "/run": {kind: fresh}}
	l.addSystem()
	l.addSettings("/etc")
	l.addOptional(env)
	if err := l.addVisible(s.Visible); err != nil {
		return nil, err
	}
	return l, l.addOwn(s, executable)
}

// addVisible adds paths of this machine at the same places.
func (l layout) addVisible(visible []string) error {
	for _, v := range visible {
		real, err := filepath.EvalSymlinks(v)
		if err != nil {
			return fmt.Errorf("visible path: %w", err)
		}
		l[real] = mount{bind, real}
		if v = filepath.Clean(v); v != real && !l.shown(v) {
			l[v] = mount{link, real}
		}
	}
	return nil
}

// addOwn adds the space's own places, and removes the hidden ones.
func (l layout) addOwn(s *Config, executable string) error {
	for _, b := range s.Binds {
		if err := l.bind(b.Host, filepath.Clean(b.Inside), b.Writable); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
	}
	if s.Isolation != IsolationImage {
		l.protectRoot()
	}
	if executable != "" {
		if err := l.bind(executable, InsideExecutable, false); err != nil {
			return fmt.Errorf("executable for the space: %w", err)
		}
	}
	for i, f := range s.Forwards {
		if err := l.bind(f.Socket, insideSocket(i), false); err != nil {
			return fmt.Errorf("forward to socket: %w", err)
		}
	}
	if err := l.hide(s.Hidden); err != nil {
		return err
	}
	return l.makePlaces()
}

func (l layout) bind(host, inside string, write bool) error {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return err
	}
	l[inside] = mount{bind, real}
	if write {
		l[inside] = mount{writable, real}
	}
	return nil
}

// hide covers the hidden paths that the layout would show.
func (l layout) hide(hidden []string) error {
	for _, h := range hidden {
		real, err := filepath.EvalSymlinks(h)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		info, err := os.Stat(h)
		if err != nil {
			return fmt.Errorf("hidden path: %w", err)
		}
		cover := mount{kind: masked}
		if info.IsDir() {
			cover.kind = fresh
		}
		for at, m := range maps.Clone(l) {
			if m.kind > writable || real == m.from || !within(real, m.from) {
				continue
			}
			inside := filepath.Join(at, strings.TrimPrefix(real, m.from))
			if _, explicit := l[inside]; !explicit && l.above(inside) == at {
				l[inside] = cover
			}
		}
	}
	return nil
}

// above returns the place in which an inside path lies, empty if that is the root.
func (l layout) above(inside string) string {
	for dir := filepath.Dir(inside); dir != "/"; dir = filepath.Dir(dir) {
		if m, ok := l[dir]; ok && m.kind != absent {
			return dir
		}
	}
	return ""
}

// shown reports whether a path of this machine is seen at the same place.
func (l layout) shown(path string) bool {
	m, ok := l[path]
	if at := l.above(path); !ok && at != "" {
		m, ok = l[at], l[at].from == at
	}
	return ok && m.kind <= writable
}

// makePlaces makes sure that every place can be made. A folder that is bound read-only has no room
// for a place that it does not have yet, so it becomes a folder of the root in which each of its
// entries is bound. The same goes for a folder with a place that is to be absent, because a file
// that only covers another one is gone when that is replaced.
func (l layout) makePlaces() error {
	for _, inside := range slices.Sorted(maps.Keys(l)) {
		for {
			at := l.above(inside)
			m := l[at]
			if at == "" || m.kind == writable || m.kind >= folder {
				break
			}
			if m.kind == link {
				return fmt.Errorf("%s cannot be a place in the space: %s is a link to %s there", inside, at, m.from)
			}
			if _, err := os.Lstat(filepath.Join(m.from, strings.TrimPrefix(inside, at))); err == nil &&
				l[inside].kind != absent {
				break
			}
			if err := l.open(at); err != nil {
				return fmt.Errorf("make %s in the space: %w", inside, err)
			}
		}
	}
	return nil
}

// open replaces a bound folder by a folder of the root with the same entries.
func (l layout) open(at string) error {
	dir := l[at].from
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	l[at] = mount{kind: folder}
	for _, e := range entries {
		place, real := filepath.Join(at, e.Name()), filepath.Join(dir, e.Name())
		if _, taken := l[place]; taken {
			continue
		}
		l[place] = mount{bind, real}
		if e.Type() == fs.ModeSymlink {
			to, err := os.Readlink(real)
			if err != nil {
				return err
			}
			l[place] = mount{link, to}
		}
	}
	return nil
}

// args are the options that make the layout. Outer places come first.
func (l layout) args() []string {
	var args []string
	if l.rooted() {
		args = []string{"--bind", l["/"].from, "/"}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	// Root could change this machine with these files, because it owns them even without capabilities.
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"} {
		args = append(args, "--ro-bind-try", "/proc/"+name, "/proc/"+name)
	}
	made, closed := map[string]bool{}, l.closed()
	for _, inside := range slices.SortedFunc(maps.Keys(l), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	}) {
		m := l[inside]
		if inside == "/" || m.kind == absent {
			continue
		}
		args = append(args, l.parents(inside, made)...)
		switch m.kind {
		case bind:
			args = append(args, "--ro-bind", m.from, inside)
		case writable:
			args = append(args, "--bind", m.from, inside)
		case link:
			args = append(args, "--symlink", m.from, inside)
		case folder:
			how := "--dir"
			if slices.Contains(closed, inside) {
				how = "--tmpfs"
			}
			args = append(args, "--perms", "0755", how, inside)
		case fresh:
			args = append(args, "--perms", "0755", "--tmpfs", inside)
		case sticky:
			args = append(args, "--perms", "1777", "--tmpfs", inside)
		case masked:
			args = append(args, "--ro-bind", "/dev/null", inside) // bound without devices, so opening it fails
		}
	}
	return args
}

// parents makes the folders above a place that are in no bind. bwrap by itself would make them for
// their owner only.
func (l layout) parents(inside string, made map[string]bool) (args []string) {
	at := l.above(inside)
	if at != "" && l[at].kind <= writable {
		return nil
	}
	for dir := filepath.Dir(inside); dir != "/" && dir != at && !made[dir]; dir = filepath.Dir(dir) {
		made[dir] = true
		args = append([]string{"--perms", "0755", "--dir", dir}, args...)
	}
	return args
}
