package image

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// device makes a device or a pipe, as root.
func device(root *os.Root, name string, h *tar.Header) error {
	kind := map[byte]uint32{
		tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO,
	}[h.Typeflag]
	if kind == 0 {
		return nil
	}
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	number := unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)) //nolint:gosec // they are small
	return errors.Join(unix.Mknodat(int(dir.Fd()), path.Base(name), kind|0o600, int(number)), dir.Close())
}

// attributes sets the extended attributes of a file or folder, such as its capabilities.
func attributes(root *os.Root, name string, h *tar.Header) error {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
		return nil
	}
	for key, value := range h.PAXRecords {
		attribute, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if !ok || strings.HasPrefix(attribute, "trusted.overlay.") { // an overlay's own description of its layers
			continue
		}
		f, err := root.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Fsetxattr(int(f.Fd()), attribute, []byte(value), 0), f.Close()); err != nil {
			return &fs.PathError{Op: "setxattr " + attribute, Path: name, Err: err}
		}
	}
	return nil
}

// isOpaque reports whether a folder of a layer hides what the layers below have there.
func isOpaque(dir *os.File) bool {
	var value [1]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}
