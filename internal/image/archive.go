package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// archive is an image as docker save and skopeo write it, extracted into a folder.
type archive struct {
	root *os.Root
	// id is the digest of config. layers are the names of files, the lowest first.
	id     string
	config []byte
	layers []string
}

// openArchive extracts an archive.
func openArchive(file, to string) (*archive, error) {
	root, err := makeRoot(to)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = unpackPart(root, h, r)
		}
		if err != nil {
			return nil, fmt.Errorf("the archive of the image: %w", err)
		}
	}
	a := &archive{root: root}
	return a, a.readManifest()
}

func makeRoot(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func unpackPart(root *os.Root, h *tar.Header, r io.Reader) error {
	name := path.Clean(h.Name)
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink: // links for layers that have several names
		return root.Symlink(h.Linkname, name)
	}
	return nil
}

func (a *archive) readManifest() error {
	data, err := a.root.ReadFile("manifest.json")
	if err != nil {
		return err
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(data, &images); err != nil || len(images) != 1 {
		return fmt.Errorf("manifest.json of the image: expected one image, got %d: %w", len(images), err)
	}
	if a.config, err = a.root.ReadFile(images[0].Config); err != nil {
		return err
	}
	a.id, a.layers = fmt.Sprintf("%x", sha256.Sum256(a.config)), images[0].Layers
	return nil
}

// unpack unpacks the layer with a number by calling entry, until ctx is done.
func (a *archive) unpack(ctx context.Context, n int, entry func(*tar.Header, io.Reader) error) error {
	f, err := a.root.Open(a.layers[n])
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	in := bufio.NewReaderSize(f, 1<<16)
	var r io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	layer := tar.NewReader(whileWanted{ctx, r})
	for {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = entry(h, whileWanted{ctx, layer}) // nothing reads the data below a hole
		}
		if err != nil {
			return fmt.Errorf("layer %d of the image: %w", n+1, err)
		}
	}
}

// whileWanted reads until ctx is done.
type whileWanted struct {
	ctx context.Context
	r   io.Reader
}

func (w whileWanted) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.r.Read(p)
}

// The names by which a layer removes a file of the layers below it, or everything that a folder has
// there.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// fileTypes are the types of entries that are files. Others, such as a header for the whole
// archive, describe the archive.
var fileTypes = string([]byte{tar.TypeReg, tar.TypeGNUSparse, tar.TypeDir,
	tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo})

// flatten unpacks all layers into one folder. It refuses entries that lead out of it. For another
// user than root everything belongs to that user, and there are no devices.
func (a *archive) flatten(ctx context.Context, to string) error {
	root, err := makeRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only a name
	for n := range a.layers {
		made := map[string]bool{}
		err := a.unpack(ctx, n, func(h *tar.Header, r io.Reader) error {
			name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
			if name == "" || !strings.ContainsRune(fileTypes, rune(h.Typeflag)) {
				return nil
			}
			made[name] = true
			dir, file := path.Split(name)
			switch {
			case file == opaque:
				return removeBelow(root, path.Clean(dir), made)
			case strings.HasPrefix(file, whiteout):
				gone := strings.TrimPrefix(file, whiteout)
				if gone == "" || gone == "." || gone == ".." {
					return fmt.Errorf("%q takes away no file", h.Name)
				}
				return root.RemoveAll(path.Join(dir, gone))
			}
			if err := place(root, name, h, r); err != nil || os.Geteuid() != 0 {
				return err
			}
			return asRoot(root, name, h)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeBelow removes what a folder has from the layers below.
func removeBelow(root *os.Root, dir string, made map[string]bool) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if name := path.Join(dir, e.Name()); !made[name] {
			err = errors.Join(err, root.RemoveAll(name))
		}
	}
	return err
}

// place puts one entry of a layer in place of what the layers below have there.
func place(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	if err == nil && (!info.IsDir() || h.Typeflag != tar.TypeDir) {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if info == nil || !info.IsDir() {
			if err := root.Mkdir(name, 0o700); err != nil {
				return err
			}
		}
		if h.Mode&0o1000 != 0 {
			mode |= fs.ModeSticky
		}
		return root.Chmod(name, mode|0o700) // otherwise nobody could remove it
	case tar.TypeReg, tar.TypeGNUSparse:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(copySparse(f, r), f.Chmod(mode|0o400), f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	}
	return nil // a device or a pipe; the sandbox has its own
}

// copySparse copies into a new file, and leaves holes for zeros. A layer of some bytes may have a
// file that is larger than the disk.
func copySparse(f *os.File, r io.Reader) error {
	part := make([]byte, 64<<10)
	for size := int64(0); ; {
		n, err := io.ReadFull(r, part)
		if bytes.Equal(part[:n], zeros[:n]) {
			// A hole at the end is written by the file's size.
		} else if _, err := f.WriteAt(part[:n], size); err != nil {
			return err
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return f.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

var zeros [64 << 10]byte

// asRoot gives an entry its owner, its whole mode and its attributes, in an order in which none
// removes another.
func asRoot(root *os.Root, name string, h *tar.Header) error {
	if h.Typeflag == tar.TypeLink {
		return nil // it is another name
	}
	if err := device(root, name, h); err != nil {
		return err
	}
	if err := root.Lchown(name, h.Uid, h.Gid); err != nil || h.Typeflag == tar.TypeSymlink {
		return err
	}
	if err := root.Chmod(name, h.FileInfo().Mode()&(fs.ModePerm|fs.ModeSticky|fs.ModeSetuid|fs.ModeSetgid)); err != nil {
		return err
	}
	return attributes(root, name, h)
}
