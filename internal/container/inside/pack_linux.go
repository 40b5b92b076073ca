package inside

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// pack writes an archive of paths of the container, whose names are relative to its root, with
// owners, modes, times, further names of files and extended attributes. Sockets are left out.
func pack(what io.Reader, out io.Writer) error {
	var p Packing
	if err := json.NewDecoder(what).Decode(&p); err != nil {
		return err
	}
	slices.Sort(p.Paths) // folders before what is in them
	// What is written passes through several processes, each of which waits for the next.
	buffered := bufio.NewWriterSize(out, 1<<20)
	a := &packer{Writer: tar.NewWriter(buffered), first: map[[2]uint64]string{}, done: map[string]bool{}}
	for _, one := range p.Paths {
		if err := a.add(one); err != nil {
			return err
		}
	}
	for _, tree := range p.Trees {
		err := filepath.WalkDir(tree, func(one string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case IsBelow(one, p.Not) && e.IsDir():
				return fs.SkipDir
			case IsBelow(one, p.Not):
				return nil
			}
			return a.add(one)
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(a.Close(), buffered.Flush())
}

// packer adds files to an archive.
type packer struct {
	*tar.Writer
	first map[[2]uint64]string // the name under which a file with several names was added
	done  map[string]bool
}

func (a *packer) add(file string) error {
	name := strings.TrimPrefix(filepath.Clean(file), "/")
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || name == "" || a.done[name] {
		return nil // it was among what is not kept
	}
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(file); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format, h.Uname, h.Gname = name, tar.FormatPAX, "", "" // the numbers count
	if info.IsDir() {
		h.Name += "/"
	}
	a.done[name] = true
	stat := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // of Linux
	if info.Mode().IsRegular() && stat.Nlink > 1 {
		key := [2]uint64{uint64(stat.Dev), stat.Ino} //nolint:unconvert // on some architectures it is smaller
		if first, ok := a.first[key]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return a.WriteHeader(h)
		}
		a.first[key] = name
	}
	if err := addAttributes(h, file); err != nil {
		return err
	}
	if err := a.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = io.CopyN(a, f, h.Size)
	return err
}

// addAttributes adds the extended attributes of a file to its header.
func addAttributes(h *tar.Header, file string) error {
	names := make([]byte, 64<<10) // the most that the names of all attributes have, and each value
	size, err := unix.Llistxattr(file, names)
	if size == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the attributes of %s: %w", file, err)
	}
	for name := range bytes.SplitSeq(bytes.Trim(names[:size], "\x00"), []byte{0}) {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(file, string(name), value)
		if err != nil {
			return fmt.Errorf("the attribute %q of %s: %w", name, file, err)
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+string(name)] = string(value[:n])
	}
	return nil
}
