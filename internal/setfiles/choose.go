package setfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// chosen are files of a folder, relative to it.
type chosen struct {
	paths []string
	size  int64
	// named are those without which a run cannot go on, slash-separated.
	named []string
}

// choose says which files are kept, and to a user which are not.
func (f Folder) choose(ctx context.Context) (c chosen, notes []string) {
	if f.Whole {
		err := f.all(ctx, &c)
		if err == nil {
			named, more := f.named(&c)
			c.named = named
			return c, more
		}
		why := fmt.Sprintf("the eval set's folder has more than %d files or %.0f MB", f.MostFiles, float64(f.MostBytes)/1e6)
		if errors.Is(err, errUnknown) {
			why = err.Error()
		}
		c = chosen{}
		notes = append(notes, why+", so the plan has only the files that are named in it: on other machines the run needs the folder itself")
	}
	named, more := f.named(&c)
	c.named = named
	return c, append(notes, more...)
}

// add adds a file that is not yet there. The error is errFull if that is too much.
func (f Folder) add(c *chosen, name string) error {
	path := filepath.Join(f.Dir, name)
	size, ok := regular(path)
	if !ok || isBelow(f.Without, path) || slices.Contains(c.paths, name) {
		return nil
	}
	if len(c.paths) >= f.MostFiles || c.size+size > f.MostBytes {
		return errFull
	}
	c.paths, c.size = append(c.paths, name), c.size+size
	return nil
}

// all adds the files of the folder: those that git knows or would, or all but what is hidden.
func (f Folder) all(ctx context.Context, c *chosen) error {
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	git := exec.CommandContext(ctx, "git", "-C", f.Dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	names, err := git.Output()
	if err != nil && ofRepository(f.Dir) {
		return errUnknown
	}
	if err != nil {
		return walk(f.Dir, ".", isHidden, func(name string) error { return f.add(c, name) })
	}
	for name := range strings.SplitSeq(string(names), "\x00") {
		if name != "" && !isHidden(name) {
			if err := f.add(c, filepath.FromSlash(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// errUnknown says that files which git ignores, such as secrets, cannot be told from the others.
var errUnknown = errors.New("git does not say which files of the eval set's folder it ignores (git status there says why)")

// ofRepository reports whether a folder is in a repository of git.
func ofRepository(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
		return true
	}
	return filepath.Dir(dir) != dir && ofRepository(filepath.Dir(dir))
}

// gitPatience is how long git may take to list the files of a folder.
const gitPatience = 10 * time.Second

// named adds what the plan names. Programs of the system are on every machine, or are not ours to move.
func (f Folder) named(c *chosen) (names, notes []string) {
	for _, name := range f.Named {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.Dir, filepath.FromSlash(name))
		}
		rel, err := filepath.Rel(f.Dir, path)
		info, missing := os.Stat(path)
		switch {
		case missing != nil || isBelow(f.Without, path) || rel == ".":
			continue
		case err != nil || !filepath.IsLocal(rel):
			if !isOfSystem(path) {
				notes = append(notes, fmt.Sprintf(
					"%s is outside of the eval set's folder, and so not in the plan: other machines must have it at the same place", name))
			}
			continue
		}
		before := *c
		if info.IsDir() {
			err = walk(f.Dir, rel, ofGit, func(name string) error { return f.add(c, name) })
		} else {
			err = f.add(c, rel)
		}
		if errors.Is(err, errFull) {
			*c = before
			notes = append(notes, fmt.Sprintf("%s is not in the plan, which takes %d files and %.0f MB: on other machines the run needs the eval set's folder",
				name, f.MostFiles, float64(f.MostBytes)/1e6))
		} else if slash := filepath.ToSlash(rel); !slices.Contains(names, slash) {
			names = append(names, slash)
		}
	}
	return names, notes
}

// isBelow reports whether a path is a folder or in it.
func isBelow(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return dir != "" && err == nil && filepath.IsLocal(rel)
}

// isOfSystem reports whether a path is that of a program or library that is installed.
func isOfSystem(path string) bool {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr", "/bin", "/sbin", "/lib", "/opt", "/etc", "/dev", "/proc", "/nix")
	return slices.ContainsFunc(dirs, func(dir string) bool { return isBelow(dir, path) })
}
