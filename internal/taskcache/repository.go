package taskcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is an empty repository of ours, into which some commits of another one are fetched.
// Nothing is ever checked out of it, so that no filter, hook or attribute of the other one has an
// effect.
type repository struct {
	url string
	// dir is removed when the fetch is done.
	dir string
	// whole says that all commits of the other one were fetched.
	whole bool
}

func (r *repository) git() gitCommand { return gitCommand{dir: filepath.Join(r.dir, "git")} }

// resolve finds the commits of branches and tags.
func (r *repository) resolve(ctx context.Context, folders []*Fetched) error {
	for _, f := range folders {
		if f.Fixed() {
			continue
		}
		ref := f.Commit
		if ref == "" {
			ref = "HEAD"
		}
		out, err := gitCommand{}.run(ctx, "ls-remote", "--end-of-options", r.url, ref, ref+"^{}")
		if err != nil {
			return fmt.Errorf(
				"%s: the commit of %s cannot be found out: %w; with the full id of a commit nobody is asked for what was fetched before",
				f.Folder, ref, err)
		}
		commit := pick(out, ref)
		if commit == "" {
			return fmt.Errorf("%s: there is no branch and no tag %q; a commit is named by all of its 40 digits", f.Folder, ref)
		}
		f.Commit = commit
	}
	return nil
}

// pick chooses as git does: a tag, with the commit that it names, has precedence over a branch.
func pick(list []byte, ref string) string {
	ids := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && isID(id) {
			ids[name] = id
		}
	}
	for _, name := range []string{ref, "refs/" + ref, "refs/tags/" + ref, "refs/heads/" + ref} {
		for _, name := range []string{name + "^{}", name} {
			if ids[name] != "" {
				return ids[name]
			}
		}
	}
	return ""
}

// fetch fetches a commit with the files of folders. It asks only for these; a server that cannot
// send so little is asked for everything.
func (r *repository) fetch(ctx context.Context, commit string, folders []*Fetched) error {
	if !r.whole {
		err := r.make(ctx)
		if err == nil {
			err = r.fetchFiles(ctx, commit, folders)
		}
		if err == nil || ctx.Err() != nil || errors.As(err, new(pathError)) {
			return err
		}
		// Some servers send no commit by its id, and some send no single file.
		whole := r.make(ctx)
		if whole == nil {
			_, whole = r.git().run(ctx, "fetch", "--quiet", "--no-tags", "--recurse-submodules=no", "origin",
				"+refs/*:refs/theirs/*")
		}
		if whole != nil {
			return fmt.Errorf("%s: %w", r.url, err)
		}
		r.whole = true
	}
	if _, err := r.git().run(ctx, "rev-parse", "--quiet", "--verify", "--end-of-options", commit+"^{commit}"); err != nil {
		return fmt.Errorf("%s has no commit %s", r.url, commit)
	}
	for _, f := range folders {
		if _, err := r.list(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// make makes the repository anew, with nothing in it.
func (r *repository) make(ctx context.Context) error {
	git := r.git()
	if err := os.RemoveAll(git.dir); err != nil {
		return err
	}
	if _, err := git.run(ctx, "init", "--quiet", "--bare", "--template=", git.dir); err != nil {
		return err
	}
	_, err := git.run(ctx, "config", "remote.origin.url", r.url)
	return err
}

func (r *repository) fetchFiles(ctx context.Context, commit string, folders []*Fetched) error {
	if _, err := r.git().run(ctx, "fetch", "--quiet", "--no-tags", "--recurse-submodules=no", "--depth=1",
		"--filter=blob:none", "origin", commit); err != nil {
		return err
	}
	if out, err := r.git().run(ctx, "rev-parse", "--verify", "--end-of-options", commit+"^{commit}"); err != nil ||
		strings.TrimSpace(string(out)) != commit {
		return fmt.Errorf("what came is not the commit %s", commit)
	}
	var ids []string
	for _, f := range folders {
		entries, err := r.list(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range entries {
			ids = append(ids, e.id)
		}
	}
	slices.Sort(ids)
	git := r.git()
	git.stdin = strings.NewReader(strings.Join(slices.Compact(ids), "\n") + "\n")
	// Git itself does the same when it needs a file that was left out.
	_, err := git.run(ctx, "-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags",
		"--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin", "origin")
	return err
}

// entry is a file or link of a commit.
type entry struct {
	name, id string
	// mode is git's: 100644, 100755, 120000 for links.
	mode string
}

// pathError is a problem of a folder that no other way of fetching can solve.
type pathError struct{ error }

// maxEntries is how many files a folder may have.
const maxEntries = 100_000

// list lists the content of a folder.
func (r *repository) list(ctx context.Context, f *Fetched) (entries []entry, err error) {
	tree := f.Commit + ":"
	if f.Path != "." {
		tree += f.Path
	}
	if out, err := r.git().run(ctx, "cat-file", "-t", tree); err != nil || strings.TrimSpace(string(out)) != "tree" {
		return nil, pathError{fmt.Errorf("%s: there is no such folder at this commit", f.Folder)}
	}
	out, err := r.git().run(ctx, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(out, []byte{0}) {
		if len(line) == 0 {
			continue
		}
		about, name, _ := strings.Cut(string(line), "\t")
		fields := strings.Fields(about)
		if len(fields) != 3 {
			return nil, fmt.Errorf("git has answered %.100q", line)
		}
		e := entry{name: name, mode: fields[0], id: fields[2]}
		if err := e.check(); err != nil {
			return nil, pathError{fmt.Errorf("%s: %w", f.Folder, err)}
		}
		entries = append(entries, e)
	}
	switch {
	case len(entries) > maxEntries:
		return nil, pathError{fmt.Errorf("%s: %d files are in it; at most %d are fetched",
			f.Folder, len(entries), maxEntries)}
	case len(entries) == 0:
		return nil, pathError{fmt.Errorf("%s: the folder is empty", f.Folder)}
	}
	return entries, nil
}

// check refuses entries that cannot be a task's: parts of other repositories, and names that lead
// out of the folder, which git itself would not make.
func (e entry) check() error {
	switch e.mode {
	case "100644", "100755", "100664", "120000":
	case "160000":
		return fmt.Errorf("%.200q is a submodule, which is not fetched; a task has all its files in its own repository",
			e.name)
	default:
		return fmt.Errorf("%.200q is neither a file nor a link", e.name)
	}
	if !filepath.IsLocal(filepath.FromSlash(e.name)) || path.Clean(e.name) != e.name {
		return fmt.Errorf("the name %.200q leads out of the folder", e.name)
	}
	for part := range strings.SplitSeq(e.name, "/") {
		if strings.EqualFold(part, ".git") {
			return fmt.Errorf("the name %.200q has a part that belongs to git", e.name)
		}
	}
	return nil
}
