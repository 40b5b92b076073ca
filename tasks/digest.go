package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Digest returns a SHA-256 over a task directory: the names of its files, whether they are
// executable, their content, and the targets of its links. It is the same on every machine and
// after a checkout with git, which keeps no empty folders, no times and no other permissions. It
// tells whether a task has changed since a run was planned.
func Digest(dir string) (string, error) {
	sum := sha256.New()
	tree := os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch mode := e.Type(); {
		case mode.IsDir():
			return nil
		case mode&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(tree, name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(sum, "link %q %q\n", name, target)
			return err
		case mode.IsRegular():
			return digestFile(sum, tree, name)
		default:
			return fmt.Errorf("%s: neither a file nor a folder nor a link", name)
		}
	})
	if err != nil {
		return "", fmt.Errorf("digest of task %s: %w", dir, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// digestFile adds a file as its quoted name, its kind and the digest of its content, so that no two
// trees read alike.
func digestFile(sum io.Writer, tree fs.FS, name string) error {
	file, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	content := sha256.New()
	if _, err := io.Copy(content, file); err != nil {
		return err
	}
	kind := "file"
	if info.Mode()&0o100 != 0 {
		kind = "program"
	}
	_, err = fmt.Fprintf(sum, "%s %q %x\n", kind, name, content.Sum(nil))
	return err
}
