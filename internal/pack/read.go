package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that reading a pack may take. A pack of [Writer] needs 8 MiB.
const maxWindow = 64 << 20

// reader extracts a pack into a folder.
type reader struct {
	root *os.Root
	list strings.Builder
	// seen has the names so far. Links are made, and folders get their modes and times, when
	// everything else is there: nothing is written through a link.
	seen    map[string]bool
	links   []*tar.Header
	folders []*tar.Header
}

// Extract reads a pack to its end, and extracts it into an empty folder. After an error the
// folder may have anything in it. An *InvalidError says what is wrong with the pack.
func Extract(r io.Reader, dir string) (m Manifest, err error) {
	zip, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return m, err
	}
	defer zip.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	x := &reader{root: root, seen: map[string]bool{}}
	t := tar.NewReader(zip)
	if m, err = x.manifest(t); err != nil {
		return m, err
	}
	if err := x.entries(t); err != nil {
		return m, err
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return m, invalid("it is damaged: something follows its list of checksums")
	}
	if n, err := io.Copy(io.Discard, zip); err != nil || n > 0 {
		return m, invalid("it is damaged: something follows its end")
	}
	return m, x.finish()
}

func (x *reader) manifest(t *tar.Reader) (m Manifest, err error) {
	h, err := t.Next()
	if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, tar.ErrHeader) {
		return m, invalid("it is not a packed run")
	}
	if err != nil {
		return m, damaged(err)
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return m, invalid("it is not a packed run: it has no manifest of one")
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return m, damaged(err)
	}
	sum := sha256.Sum256(data)
	x.list.WriteString(line(tar.TypeReg, h.Mode, sum[:], h.Name))
	return readManifest(data)
}

// entries extracts all entries up to the list, which must match them.
func (x *reader) entries(t *tar.Reader) error {
	for {
		h, err := t.Next()
		if err != nil {
			return damaged(err)
		}
		if h.Name == listName {
			said, err := io.ReadAll(io.LimitReader(t, int64(x.list.Len())+1)) // a longer list is wrong
			if err != nil {
				return damaged(err)
			}
			if !bytes.Equal(said, []byte(x.list.String())) {
				return invalid("it is damaged: what is in it is not what its list of checksums says")
			}
			return nil
		}
		if err := x.entry(t, h); err != nil {
			return err
		}
	}
}

func (x *reader) entry(t *tar.Reader, h *tar.Header) error {
	h.Name = strings.TrimSuffix(h.Name, "/")
	if err := checkName(h.Name); err != nil {
		return err
	}
	if x.seen[h.Name] || h.Name == manifestName || h.Mode&^0o777 != 0 {
		return invalid("it is damaged: %q is in it twice, or has a mode that no file of a run has", h.Name)
	}
	x.seen[h.Name] = true
	sum := sha256.New()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := x.folder(h.Name); err != nil {
			return err
		}
		x.folders = append(x.folders, h)
	case tar.TypeSymlink:
		if !linkStays(h.Name, h.Linkname) {
			return invalid("it has the link %q to %q, which leads out of its folder", h.Name, h.Linkname)
		}
		_, _ = io.WriteString(sum, h.Linkname) // a hash takes everything
		x.links = append(x.links, h)
	case tar.TypeReg:
		if err := x.file(t, h, sum); err != nil {
			return err
		}
	default:
		return invalid("%q in it is neither a file nor a folder", h.Name)
	}
	x.list.WriteString(line(h.Typeflag, h.Mode, sum.Sum(nil), h.Name))
	return nil
}

// folder makes a folder, unless it exists.
func (x *reader) folder(name string) error {
	err := x.root.MkdirAll(name, 0o700)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return invalid("it is damaged: %q in it is a file and a folder", name)
	}
	return err
}

func (x *reader) file(t *tar.Reader, h *tar.Header, sum io.Writer) error {
	if err := x.folder(path.Dir(h.Name)); err != nil {
		return err
	}
	f, err := x.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return invalid("it is damaged: %q in it is a file and a folder", h.Name)
	}
	if err != nil {
		return err
	}
	from := &source{t: t}
	_, err = io.Copy(io.MultiWriter(f, sum), from)
	if from.err != nil {
		err = damaged(from.err)
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return x.attributes(h)
}

// source keeps the error of reading apart from those of writing.
type source struct {
	t   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	if n, err = s.t.Read(p); err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (x *reader) attributes(h *tar.Header) error {
	return errors.Join(x.root.Chmod(h.Name, os.FileMode(h.Mode)), x.root.Chtimes(h.Name, time.Time{}, h.ModTime))
}

// behindLink returns a name that leads through a link of the pack, empty if none does. A file made
// there would be elsewhere than its name says, and so would be the target of a link.
func (x *reader) behindLink() string {
	links := map[string]bool{}
	for _, h := range x.links {
		links[h.Name] = true
	}
	for name := range x.seen {
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if links[up] {
				return name
			}
		}
	}
	return ""
}

// finish makes the links, and gives the folders their modes and times, the deepest first.
func (x *reader) finish() error {
	if name := x.behindLink(); name != "" {
		return invalid("%q in it leads through a link", name)
	}
	for _, h := range x.links {
		err := x.folder(path.Dir(h.Name))
		if err == nil {
			err = x.root.Symlink(h.Linkname, h.Name)
		}
		if errors.Is(err, fs.ErrExist) {
			err = invalid("it is damaged: %q in it is a link and a folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
	for _, h := range slices.Backward(x.folders) {
		if err := x.attributes(h); err != nil {
			return err
		}
	}
	return nil
}
