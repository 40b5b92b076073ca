package rollout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/workspace"
)

// layers handles the changes that the processes of a rollout have made in the root of an image,
// with their snapshots. Folders over no image that the store keeps are handled like these.
type layers struct{ held *held }

// snapshots returns the snapshots of the rollout.
func (l layers) snapshots() *snapshot.Store {
	s := &snapshot.Store{Dir: filepath.Join(l.held.root(), FolderSnapshots), Root: l.held.root(),
		WithoutSockets: portable(l).on()}
	switch {
	case !l.held.overImage():
	case os.Geteuid() == 0:
		s.Overlay = snapshot.OverlayTrusted
	default:
		s.Overlay = snapshot.OverlayUser
	}
	return s
}

// verifierSnapshot names the snapshot of the folders that the agent has left over an image.
const verifierSnapshot = "verified"

// keep takes a snapshot of the folders that the agent has left. The snapshot of the segment's
// beginning stays until the segment is committed.
func (l layers) keep(name string, folders []string) error {
	if err := l.held.stillHeld(); err != nil {
		return err
	}
	s := l.snapshots()
	// An attempt that was never committed may have left one of this name.
	if err := s.Prune(filepath.Base(l.held.segmentCopy())); err != nil {
		return err
	}
	report, err := s.Take(name, folders...)
	if err == nil && len(report.LeftOut) > 0 {
		l.held.host.Logger.Warn("devices and sockets that the agent has made are not kept",
			"rollout", l.held.claim.RolloutID, "paths", report.LeftOut)
	}
	return err
}

// restore does over an image what [workspace.Restore] does for other folders: it restores them for
// a process that is going to change them. If there is no snapshot, the folders are unchanged, and
// one is taken.
func (l layers) restore(name string, folders []string) error {
	s := l.snapshots()
	if !s.Has(name) {
		if _, err := os.Lstat(filepath.Join(l.held.root(), workspace.FolderUpper)); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Workspace,
				"what the rollout has changed in its image is missing: "+
					filepath.Join(l.held.root(), workspace.FolderUpper))
		}
		if err := l.keep(name, folders); err != nil {
			return err
		}
	}
	return errors.Join(s.Restore(name), s.Prune(name))
}
