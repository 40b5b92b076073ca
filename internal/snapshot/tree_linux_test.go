package snapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// growth grows a random tree of all that an upper folder can hold.
type growth struct {
	t       testing.TB
	rand    *rand.Rand
	root    bool
	overlay string
	// files are those that may get another name.
	files []string
	count int
	// plain are those that have got nothing of their own yet.
	plain []string
}

// hostile are names that no program expects.
var hostile = []string{"new\nline", "..\\up", "-rf", "\xff\xfe not UTF-8", " ", "…", strings.Repeat("n", 255), "$(touch x)", ".evalrun-shared", "a.tmp"}

func (g *growth) name() string {
	g.count++
	if g.rand.IntN(8) == 0 {
		name := hostile[g.rand.IntN(len(hostile))]
		return name[:min(len(name), 245)] + fmt.Sprint(g.count)
	}
	return fmt.Sprint("file-", g.count)
}

// grow fills a folder.
func (g *growth) grow(dir string, depth int) {
	g.fill(dir, depth)
	for _, path := range slices.Backward(g.plain) { // folders after what is in them
		g.adorn(path)
	}
	g.plain, g.files = nil, nil
}

func (g *growth) fill(dir string, depth int) {
	t := g.t
	for range g.rand.IntN(9) {
		path := filepath.Join(dir, g.name())
		kind := g.rand.IntN(12)
		switch {
		case kind < 3 && depth > 0:
			must(t, os.Mkdir(path, 0o700))
			if g.rand.IntN(3) == 0 && g.overlay != "" {
				must(t, unix.Lsetxattr(path, g.overlay+"opaque", []byte("y"), 0))
			}
			g.plain = append(g.plain, path)
			g.fill(path, depth-1)
			continue
		case kind < 8:
			g.write(path)
			g.files = append(g.files, path)
		case kind == 8:
			must(t, os.Symlink([]string{"../../../../etc/passwd", "/etc/shadow", "nowhere\n", "."}[g.rand.IntN(4)], path))
		case kind == 9:
			must(t, unix.Mknod(path, unix.S_IFIFO|0o644, 0))
		case kind == 10:
			must(t, unix.Mknod(path, unix.S_IFCHR, 0))
			continue
		case kind == 11 && len(g.files) > 0:
			must(t, os.Link(g.files[g.rand.IntN(len(g.files))], path))
			continue
		default:
			must(t, unix.Mknod(path, unix.S_IFSOCK|0o600, 0))
		}
		g.plain = append(g.plain, path)
	}
}

// write writes a file with some content, and maybe holes.
func (g *growth) write(path string) {
	f, err := os.Create(path)
	must(g.t, err)
	size := []int{0, 1, 4096, 70_000, 1<<20 + 5}[g.rand.IntN(5)]
	content := bytes.Repeat([]byte{byte(g.rand.IntN(4))}, size)
	if g.rand.IntN(2) == 0 {
		for i := range content {
			content[i] = byte(g.rand.Uint32())
		}
	}
	_, err = f.WriteAt(content, int64(g.rand.IntN(3))<<[]int{0, 12, 20, 32}[g.rand.IntN(4)])
	must(g.t, err)
	if info, _ := f.Stat(); g.rand.IntN(3) == 0 {
		must(g.t, f.Truncate(info.Size()+int64(g.rand.IntN(3))<<20))
	}
	must(g.t, f.Close())
}

// adorn gives what is there an owner, attributes, a mode and a time.
func (g *growth) adorn(path string) {
	info, err := os.Lstat(path)
	must(g.t, err)
	if g.root && g.rand.IntN(3) == 0 {
		must(g.t, os.Lchown(path, g.rand.IntN(70_000), g.rand.IntN(70_000)))
	}
	if info.IsDir() || info.Mode().IsRegular() {
		if g.rand.IntN(4) == 0 {
			must(g.t, unix.Lsetxattr(path, "user.\xffnote", []byte("\x00\xff"), 0))
			must(g.t, unix.Lsetxattr(path, "user.empty", nil, 0))
		}
	}
	if g.root && info.Mode().IsRegular() && g.rand.IntN(4) == 0 {
		must(g.t, unix.Lsetxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)) // cap_net_bind_service=ep
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		mode := []uint32{0, 0o400, 0o644, 0o755, 0o4755, 0o2750, 0o1777, 0o200}[g.rand.IntN(8)]
		must(g.t, unix.Chmod(path, mode))
	}
	at := unix.Timespec{Sec: g.rand.Int64N(5_000_000_000) - 1_000_000_000, Nsec: g.rand.Int64N(1_000_000_000)}
	must(g.t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}

// picture describes everything below some folders, in a way of its own: path by path with what the
// system says of it. Files with one inode are named after the first.
func picture(t testing.TB, root string, folders ...string) (out []string) {
	t.Helper()
	first := map[uint64]string{}
	var look func(rel string)
	look = func(rel string) {
		path := filepath.Join(root, rel)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		kind := st.Mode & unix.S_IFMT
		if own := kind == unix.S_IFDIR || kind == unix.S_IFREG; own && os.Geteuid() != 0 { // the agent may have closed it
			must(t, unix.Chmod(path, 0o700))
			defer func() { must(t, unix.Chmod(path, st.Mode&0o7777)) }()
		}
		out = append(out, describe(t, path, rel, st, first))
		if kind == unix.S_IFDIR {
			entries, err := os.ReadDir(path)
			must(t, err)
			for _, e := range entries {
				look(filepath.Join(rel, e.Name()))
			}
		}
	}
	for _, folder := range folders {
		look(folder)
	}
	return out
}

func describe(t testing.TB, path, rel string, st unix.Stat_t, first map[uint64]string) string {
	line := fmt.Sprintf("%q %o uid %d gid %d", rel, st.Mode, st.Uid, st.Gid)
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && kind != unix.S_IFCHR {
		if name, ok := first[st.Ino]; ok {
			return line + " = " + name
		}
		first[st.Ino] = rel
		line += fmt.Sprintf(" links %d", st.Nlink)
	}
	line += fmt.Sprint(" ", time.Unix(st.Mtim.Unix()).UTC())
	if kind == unix.S_IFCHR {
		line += fmt.Sprint(" device ", st.Rdev)
	}
	if kind == unix.S_IFLNK {
		to, err := os.Readlink(path)
		must(t, err)
		line += fmt.Sprintf(" -> %q", to)
	}
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	must(t, err)
	for _, name := range slices.Sorted(strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00")) {
		value := make([]byte, 4096)
		if name != "" {
			n, err := unix.Lgetxattr(path, name, value)
			must(t, err)
			line += fmt.Sprintf(" %q=%q", name, value[:n])
		}
	}
	if kind == unix.S_IFREG {
		line += fmt.Sprintf(" size %d %s", st.Size, parts(t, path, st))
	}
	return line
}

// parts are the parts of a file that are no holes, with their sums.
func parts(t testing.TB, path string, st unix.Stat_t) (out string) {
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	for at := int64(0); at < st.Size; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		must(t, err)
		end, err := f.Seek(begin, unix.SEEK_HOLE)
		must(t, err)
		content := make([]byte, end-begin)
		_, err = f.ReadAt(content, begin)
		must(t, err)
		out += fmt.Sprintf("[%d-%d %x]", begin, end, sha256.Sum256(content))
		at = end
	}
	return out
}
