package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptXattrs lists the attributes that an agent or an image can have given to a file; those that
// end with a period are prefixes. All other attributes are security labels of this system.
var keptXattrs = []string{"user.", "trusted.", "security.capability", "system.posix_acl_access",
	"system.posix_acl_default"}

const (
	markOpaque   = "opaque"
	markRedirect = "redirect"
	markMetacopy = "metacopy"
)

// forgottenMarks lists the marks by which an overlay refers to its current lower folder; all of
// them are optional.
var forgottenMarks = []string{"origin", "impure", "nlink", "uuid", "upper"}

// overlayMarks takes the marks of an overlay out of the attributes of an entry.
func (t *taker) overlayMarks(e *entry) error {
	var kept []xattr
	for _, x := range e.Xattrs {
		mark, ok := strings.CutPrefix(string(x.Name), t.store.Overlay)
		switch {
		case !ok || t.store.Overlay == "":
			kept = append(kept, x)
		case mark == markOpaque && string(x.Value) == "y" && e.Type == typeFolder:
			e.Opaque = true
		case mark == markRedirect || mark == markMetacopy:
			return fmt.Errorf("it has %s: the overlay must be mounted with redirect_dir=off and metacopy=off", x.Name)
		case !slices.Contains(forgottenMarks, mark):
			kept = append(kept, x)
		}
	}
	e.Xattrs = kept
	return nil
}

// xattrPath returns a path to an entry of a folder that cannot be opened.
func xattrPath(fd int, name string) string { return "/proc/self/fd/" + strconv.Itoa(fd) + "/" + name }

// listed returns the attributes of an open file, or of a name in an open folder.
func listed(fd int, name string) ([]xattr, error) {
	list := func(into []byte) (int, error) { return unix.Flistxattr(fd, into) }
	get := func(attr string, into []byte) (int, error) { return unix.Fgetxattr(fd, attr, into) }
	if name != "" {
		path := xattrPath(fd, name)
		list = func(into []byte) (int, error) { return unix.Llistxattr(path, into) }
		get = func(attr string, into []byte) (int, error) { return unix.Lgetxattr(path, attr, into) }
	}
	names, err := whole(list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var out []xattr
	for attr := range bytes.SplitSeq(bytes.TrimSuffix(names, []byte{0}), []byte{0}) {
		if !slices.ContainsFunc(keptXattrs, func(kept string) bool {
			return string(attr) == kept || strings.HasSuffix(kept, ".") && strings.HasPrefix(string(attr), kept)
		}) {
			continue
		}
		value, err := whole(func(into []byte) (int, error) { return get(string(attr), into) })
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", attr, err)
		}
		out = append(out, xattr{bytes.Clone(attr), value})
	}
	return out, nil
}

// whole reads a value whose size the call returns first.
func whole(read func(into []byte) (int, error)) ([]byte, error) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	n, err = read(buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// readlinkat returns where a link leads.
func readlinkat(fd int, name string) ([]byte, error) {
	for size := 256; ; size *= 4 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(fd, name, buf)
		if err != nil {
			return nil, err
		}
		if n < size {
			return buf[:n], nil
		}
	}
}

// namesIn returns the names in an open folder.
func namesIn(fd int) (names []string, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return names, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var used int
			if used, _, names = unix.ParseDirent(rest, -1, names); used == 0 {
				return nil, errors.New("the system gives names that cannot be read")
			}
			rest = rest[used:]
		}
	}
}

// setTimes sets the times of modification and access of an open file, or of a name in an open
// folder. It does not follow links.
func setTimes(fd int, name string, sec, nsec int64) error {
	at := unix.Timespec{Sec: sec, Nsec: nsec}
	times := []unix.Timespec{at, at}
	if name != "" {
		return unix.UtimesNanoAt(fd, name, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	// futimens(3) is utimensat(2) without a path.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])),
		0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
