package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// root is the folder of what the rollout keeps. An agent that lives in an environment without isolation has it outside of any checkout, because
// it would pick up the AGENTS.md and the .git above it.
func (w *worker) root() string {
	if w.entry.LivesInEnvironment() && w.plan.Isolation == sandbox.IsolationProcess {
		return filepath.Join(workspace.StateDir(), w.o.Store.ID(), w.claim.RolloutID)
	}
	return workspace.WorkDir(w.o.Store.Dir(), w.claim.RolloutID)
}

func (w *worker) workspace() string { return filepath.Join(w.root(), workspace.FolderWorkspace) }

// prepareWorkspace makes what the rollout keeps what it was at the segment's start. The first segment starts with an empty workspace. Before
// any other begins a copy is workspace.Kept, and whoever repeats the segment starts from that.
func (w *worker) prepareWorkspace() error {
	if err := w.stillHeld(); err != nil {
		return err
	}
	saved := w.copyDir()
	if w.claim.Segment == 1 {
		for _, name := range w.keptFolders() {
			if err := workspace.MakeEmpty(filepath.Join(w.root(), name)); err != nil {
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
			return fault.New(fault.Workspace, "the workspace that the rollout was suspended with is missing: "+w.workspace())
		}
		// No copy: the agent of this segment was never started, and all is as it was.
		return workspace.Snapshot(w.root(), saved, w.keptFolders())
	case err != nil:
		return err
	}
	return workspace.Restore(saved, w.root(), w.keptFolders())
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
		return workspace.Kept
	}
	return workspace.Kept[:1]
}

// copyDir is where that is kept as it was when the segment began.
func (w *worker) copyDir() string {
	return filepath.Join(w.root(), "segment-"+strconv.Itoa(w.claim.Segment))
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
