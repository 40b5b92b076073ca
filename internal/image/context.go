package image

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// key is the digest of everything in the request: the name, and the build context as the builder
// sees it. Times and owners do not count, as they do not for Docker's own cache.
func (s Spec) key() (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "1\n%s\nreference %s\n", platform(), s.Reference)
	if s.Context == "" {
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	if s.Target != "" || s.Args != nil { // most have neither, and their keys stay what they were
		_, _ = fmt.Fprintf(h, "target %q args %q\n", s.Target, s.Args)
	}
	if err := hashFile(h, s.dockerfile(), "Dockerfile"); err != nil {
		return "", err
	}
	err := s.walk(func(path, rel string, info fs.FileInfo) error {
		switch {
		case info.IsDir():
			_, _ = fmt.Fprintf(h, "folder %q %o\n", rel, info.Mode().Perm())
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			_, _ = fmt.Fprintf(h, "link %q %q\n", rel, target)
			return err
		}
		return hashFile(h, path, fmt.Sprintf("%q %o", rel, info.Mode().Perm()))
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func hashFile(h hash.Hash, path, title string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	one := sha256.New()
	if _, err := io.Copy(one, f); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(h, "file %s %x\n", title, one.Sum(nil))
	return nil
}

// stage copies the context to a folder, without the files that no build may see.
func (s Spec) stage(to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	return s.walk(func(path, rel string, info fs.FileInfo) error {
		at := filepath.Join(to, rel)
		switch {
		case info.IsDir():
			return errors.Join(os.MkdirAll(at, 0o700), os.Chmod(at, info.Mode().Perm()|0o700))
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, at)
		}
		return copyFile(path, at, info)
	})
}

func copyFile(from, to string, info fs.FileInfo) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// walk visits the files of the build context, folders before their content. It does not follow
// links, and leaves out sockets, pipes and devices.
func (s Spec) walk(visit func(path, rel string, info fs.FileInfo) error) error {
	ignored, err := s.ignored()
	if err != nil {
		return err
	}
	var hidden []fs.FileInfo
	for _, dir := range s.Hidden {
		if info, err := os.Stat(dir); err == nil {
			hidden = append(hidden, info)
		}
	}
	root, err := filepath.EvalSymlinks(s.Context)
	if err != nil {
		return err
	}
	// If a pattern with ! includes a file again, the folders above it are included, too.
	var above []string
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(hidden, func(h fs.FileInfo) bool { return os.SameFile(h, info) }) {
			return filepath.SkipDir // this is all of them, because they are folders
		}
		for len(above) > 0 && !strings.HasPrefix(rel, above[len(above)-1]+string(filepath.Separator)) {
			above = above[:len(above)-1]
		}
		skip, err := ignored.MatchesOrParentMatches(rel)
		if err != nil {
			return err
		}
		if skip {
			switch {
			case entry.IsDir() && ignored.Exclusions():
				above = append(above, rel)
			case entry.IsDir():
				return filepath.SkipDir
			}
			return nil
		}
		if !info.IsDir() && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		for _, dir := range above {
			info, err := os.Lstat(filepath.Join(root, dir))
			if err != nil {
				return err
			}
			if err := visit(filepath.Join(root, dir), dir, info); err != nil {
				return err
			}
		}
		above = nil
		return visit(path, rel, info)
	})
}

// ignored are the patterns of the files that are no part of the context.
func (s Spec) ignored() (*patternmatcher.PatternMatcher, error) {
	var patterns []string
	for _, file := range []string{s.dockerfile() + ".dockerignore", filepath.Join(s.Context, ".dockerignore")} {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		patterns, err = ignorefile.ReadAll(bufio.NewReader(f))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		break
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("the .dockerignore of %s: %w", s.Context, err)
	}
	return m, nil
}
