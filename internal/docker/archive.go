package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// AddToArchive adds a file, folder or link of this machine to an archive, without what is in a
// folder. It belongs to root there. Everything else is left out.
func AddToArchive(a *tar.Writer, file, name string, info fs.FileInfo) error {
	return add(a, file, name, info, Root)
}

func add(a *tar.Writer, file, name string, info fs.FileInfo, owner Owner) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Size: info.Size(),
		Uid: owner.UID, Gid: owner.GID}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name, h.Size = tar.TypeDir, name+"/", 0
		if info.Mode()&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
	case !info.Mode().IsRegular():
		return nil
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

// Owner has the numbers of a user and a group.
type Owner struct{ UID, GID int }

// Root is the owner of what has no other.
var Root = Owner{}

// maxName bounds the names in an archive for the daemon, which puts the path of a folder of its own before
// them: Linux takes 4,095 bytes. An agent can make longer ones.
const maxName = 3500

// AddTree adds a file, or a folder with everything below it, under a name, as belonging to an owner. What
// has a name that no daemon could unpack is left out.
func AddTree(a *tar.Writer, source, name string, owner Owner) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(name)+len(file)-len(source) > maxName {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		return add(a, file, path.Join(name, filepath.ToSlash(rel)), info, owner)
	})
}

// ErrTooLarge is the error of an archive that brings more than it may.
var ErrTooLarge = errors.New("it is larger than may be taken out of a container")

// Extracted is the name that Extract gives to the file or folder of an archive.
const Extracted = "extracted"

// Extract unpacks an archive that a container has written into a folder, as Extracted: the first
// element of all its names. No entry leads out of it, whatever it says. Everything belongs to this
// user, who may read and remove it. Devices, pipes and sockets are left out. limit is how many bytes
// the files may have together.
func Extract(archive io.Reader, to string, limit int64) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // the written files are closed
	for entries, r := 0, tar.NewReader(archive); ; entries++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive of the Docker daemon: %w", err)
		}
		if limit -= h.Size; limit < 0 || entries > maxEntries {
			return ErrTooLarge
		}
		if err := extract(root, h, r); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

// maxEntries is how many files and folders are taken out of a container at once.
const maxEntries = 1 << 20

func extract(root *os.Root, h *tar.Header, r io.Reader) error {
	name := within(h.Name)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm()
	if info, err := root.Lstat(name); err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir) {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return root.Chmod(name, mode|0o700)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Chmod(mode|0o600), f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(within(h.Linkname), name)
	}
	return nil
}

// within is a name of an archive with Extracted as its first element.
func within(name string) string {
	_, below, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+name), "/"), "/")
	return path.Join(Extracted, below)
}
