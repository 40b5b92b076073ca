package pack

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Writer writes a pack.
type Writer struct {
	zip *zstd.Encoder
	tar *tar.Writer
	// list is the content of the last entry.
	list strings.Builder
	// Check, if not nil, is given the content of each file that is added. An error of closing what it returns
	// ends the adding.
	Check func(name string) io.WriteCloser
	// Left has the paths that were left out: entries other than files, folders and links, and links
	// that lead out of their folder.
	Left []string
}

// NewWriter begins a pack. Close ends it.
func NewWriter(w io.Writer, m Manifest) (*Writer, error) {
	zip, err := zstd.NewWriter(w)
	if err != nil {
		return nil, err
	}
	p := &Writer{zip: zip, tar: tar.NewWriter(zip)}
	m.Format, m.Version = format, Version
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return p, p.data(manifestName, data)
}

// data writes an entry that does not come from a file.
func (p *Writer) data(name string, data []byte) error {
	if err := p.tar.WriteHeader(&tar.Header{
		Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(data)),
	}); err != nil {
		return err
	}
	if _, err := p.tar.Write(data); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	p.list.WriteString(line(tar.TypeReg, 0o600, sum[:], name))
	return nil
}

// Tree adds a file, or a folder with everything in it except the named folders below it. It adds
// nothing if root does not exist.
func (p *Writer) Tree(name, root string, without ...string) error {
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		for _, left := range without {
			if below == left {
				return fs.SkipDir
			}
		}
		return p.add(path.Join(name, filepath.ToSlash(below)), file, entry)
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Lstat(root); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

func (p *Writer) add(name, file string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode().IsRegular(), info.IsDir():
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(file); err != nil {
			return err
		}
		if !linkStays(name, target) {
			p.Left = append(p.Left, name)
			return nil
		}
	default:
		p.Left = append(p.Left, name)
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Mode = name, int64(info.Mode().Perm())
	// The format PAX keeps the mtime to the nanosecond.
	header.Uid, header.Gid, header.Uname, header.Gname, header.Format = 0, 0, "", "", tar.FormatPAX
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, target) // a hash takes everything
	if info.Mode().IsRegular() {
		to := io.MultiWriter(p.tar, sum)
		if p.Check == nil {
			err = p.content(to, file)
		} else {
			check := p.Check(name)
			err = errors.Join(p.content(io.MultiWriter(to, check), file), check.Close())
		}
		if err != nil {
			return err
		}
	}
	p.list.WriteString(line(header.Typeflag, header.Mode, sum.Sum(nil), name))
	return nil
}

func (p *Writer) content(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}

// Close writes the list and the end.
func (p *Writer) Close() error {
	return errors.Join(p.data(listName, []byte(p.list.String())), p.tar.Close(), p.zip.Close())
}
