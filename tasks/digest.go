package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
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

// CheckDigest compares a task directory with its digest in a registry: Harbor's content hash of a
// package, or evalrun's own [Digest].
func CheckDigest(dir, want string) error {
	own, err := Digest(dir)
	if err != nil || own == want {
		return err
	}
	if isFile(filepath.Join(dir, ".gitignore")) {
		return fmt.Errorf("its digest is %s and not %s; the digest of a package with a .gitignore is not known here",
			own, want)
	}
	harbor, err := contentHash(dir)
	if err == nil && harbor != want {
		err = fmt.Errorf("its content has the digest %s, and the registry says %s", harbor, want)
	}
	return err
}

// contentHash is Harbor's hash of the published files of a task (harbor.publisher.packager, 0.24).
func contentHash(dir string) (string, error) {
	var names []string
	for _, name := range []string{configFile, instructionFile, "README.md", "trajectory.json"} {
		if isFile(filepath.Join(dir, name)) {
			names = append(names, name)
		}
	}
	tree := os.DirFS(dir)
	for _, part := range []string{"environment", "tests", "solution", "steps"} {
		if !isFolder(filepath.Join(dir, part)) {
			continue
		}
		err := fs.WalkDir(tree, part, func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && isFile(filepath.Join(dir, filepath.FromSlash(name))) && !unpublished(name) {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s\x00%x\n", name, sha256.Sum256(data)) // a hash takes everything
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// unpublished reports whether Harbor leaves a file out of a package.
func unpublished(name string) bool {
	base := path.Base(name)
	return base == ".DS_Store" || slices.Contains(strings.Split(path.Dir(name), "/"), "__pycache__") ||
		strings.HasSuffix(base, "~") || slices.Contains([]string{".pyc", ".swp", ".swo"}, path.Ext(base))
}
