package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

// root is the folder of what the rollout keeps. An agent that lives in an environment without isolation has it outside of any checkout, because
// it would pick up the AGENTS.md and the .git above it.
func (w *worker) root() string {
	if w.entry.LivesInEnvironment() && w.plan.Isolation == sandbox.IsolationProcess {
		return filepath.Join(StateDir(), w.o.Store.ID(), w.claim.RolloutID)
	}
	return WorkDir(w.o.Store.Dir(), w.claim.RolloutID)
}

func (w *worker) workspace() string { return filepath.Join(w.root(), folderWorkspace) }

// prepareWorkspace makes what the rollout keeps what it was at the segment's start. The first segment starts with an empty workspace. Before
// any other begins a copy is kept, and whoever repeats the segment starts from that.
func (w *worker) prepareWorkspace() error {
	if err := w.stillHeld(); err != nil {
		return err
	}
	saved := w.copyDir()
	if w.claim.Segment == 1 {
		for _, name := range w.keptFolders() {
			if err := makeEmpty(filepath.Join(w.root(), name)); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := os.Lstat(saved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The segment before has left a workspace, even if its agent had removed it: see keep.
		if _, err := os.Lstat(w.workspace()); errors.Is(err, fs.ErrNotExist) {
			return &agent.Fault{Category: agent.FaultWorkspace, Message: "the workspace that the rollout was suspended with is missing: " + w.workspace()}
		}
		// No copy: the agent of this segment was never started, and all is as it was.
		return copyTrees(w.root(), saved, w.keptFolders())
	case err != nil:
		return err
	}
	return restoreTrees(saved, w.root(), w.keptFolders())
}

// stillHeld makes sure, if some time has passed since the claim, that nobody else has the rollout by now: this process may have been stopped for a while,
// and what it is about to empty may be what a later segment has left.
func (w *worker) stillHeld() error {
	if time.Since(w.claimed) < w.o.Lease/3 {
		return nil
	}
	held, _, err := w.o.Store.Renew(context.Background())
	if err == nil && !slices.Contains(held, w.claim.RolloutID) {
		return store.ErrFenced
	}
	return err
}

// keptFolders are the folders that survive a suspension.
func (w *worker) keptFolders() []string {
	if w.entry.LivesInEnvironment() {
		return kept
	}
	return kept[:1]
}

// makeEmpty makes a folder, or empties it: an attempt may have been there of which not even the claim is left.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
}

// copyDir is where that is kept as it was when the segment began.
func (w *worker) copyDir() string {
	return filepath.Join(w.root(), "segment-"+strconv.Itoa(w.claim.Segment))
}

// restoreTrees puts copies of folders in the place of what has become of them.
func restoreTrees(saved, to string, names []string) error {
	for _, name := range names {
		dir := filepath.Join(to, name)
		reclaim(dir)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := copyTree(filepath.Join(saved, name), dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyTrees copies folders of one folder to a place where nothing is. The copy appears there as a whole and durable, or not at all.
func copyTrees(from, to string, names []string) error {
	tmp := to + ".tmp"
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	for _, name := range names {
		if err := copyTree(filepath.Join(from, name), filepath.Join(tmp, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, os.RemoveAll(tmp))
		}
	}
	if err := errors.Join(durable.Sync(tmp), os.Rename(tmp, to)); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(to))
}

// copyTree copies a folder to a place where nothing is. The copy appears there as a whole and durable, or not at all.
func copyTree(from, to string) (err error) {
	tmp := to + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(tmp, rel), entry)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w", from, err), os.RemoveAll(tmp))
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, to); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(to))
}

// copyEntry copies a file, a link or (without what is in it) a folder. Sockets, pipes and devices are left out: nothing could be
// behind them any more.
func copyEntry(from, to string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case entry.IsDir():
		return errors.Join(os.Mkdir(to, 0o700), os.Chmod(to, info.Mode()&(fs.ModePerm|fs.ModeSticky)|0o700))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	return errors.Join(copyContent(out, in, info.Size()), out.Chmod(info.Mode().Perm()|0o600), out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// keep makes folders of the rollout durable, which whoever comes next needs.
func (w *worker) keep(folders []string) error {
	if err := takeBack(w.root(), folders); err != nil {
		return err
	}
	for _, name := range folders {
		if err := syncTree(filepath.Join(w.root(), name)); err != nil {
			return err
		}
	}
	return nil
}

// takeBack makes folders that agents may write to folders of ours again, whatever has become of them. If an agent has removed or replaced one there
// is an empty one in its place.
func takeBack(root string, folders []string) error {
	for _, name := range folders {
		dir := filepath.Join(root, name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
				return err
			}
		}
		reclaim(dir)
	}
	return nil
}

// syncTree makes a folder with everything in it durable. The error says what could not be; the rest is durable all the same.
func syncTree(dir string) error {
	var failed error
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			failed = cmp.Or(failed, err)
			return fs.SkipDir
		case entry.IsDir() || entry.Type().IsRegular():
			failed = cmp.Or(failed, durable.Sync(path))
		}
		return nil
	})
	return cmp.Or(failed, err)
}

// syncFiles makes the files of the segment durable and returns their digests.
func (w *worker) syncFiles(names []string) ([]store.File, error) {
	if len(names) == 0 {
		return nil, nil
	}
	dir := w.segmentDir()
	files := make([]store.File, len(names))
	var paths []string
	for i, name := range names {
		var err error
		if files[i], err = digest(dir, name); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, name)
		for paths = append(paths, path); filepath.Dir(path) != dir; path = filepath.Dir(path) {
			paths = append(paths, filepath.Dir(path)) // of a step
		}
	}
	// The folders from the attempt's up to that of the run's rollouts may all be new.
	for range 4 {
		paths = append(paths, dir)
		dir = filepath.Dir(dir)
	}
	return files, w.syncer.Sync(paths...)
}

// buffers are what files are read into for their digest.
var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

func digest(dir, name string) (store.File, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return store.File{}, err
	}
	defer f.Close()
	h := sha256.New()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	size, err := io.CopyBuffer(h, struct{ io.Reader }{f}, *buf) // not *os.File, which would bring a buffer of its own
	return store.File{Name: name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}
