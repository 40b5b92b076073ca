package rollout

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// prepareFolders makes the kept folders what they were at the segment's start. The first segment
// starts with empty ones. Before any other begins a copy is made, and whoever repeats the segment
// starts from that.
func (h *held) prepareFolders() error {
	if err := h.stillHeld(); err != nil {
		return err
	}
	if h.claim.Segment == 1 {
		for _, name := range h.keptFolders() {
			if err := workspace.MakeEmpty(filepath.Join(h.root(), name)); err != nil {
				return err
			}
		}
		return nil
	}
	if h.entry.NeedsSandbox() && h.overImage() {
		return h.restoreLayers(filepath.Base(h.segmentCopy()), h.keptFolders())
	}
	_, err := os.Lstat(h.segmentCopy())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The suspension has left a workspace, even if the agent had removed it: see keepFolders.
		if _, err := os.Lstat(h.workspace()); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Workspace, "the workspace that the rollout was suspended with is missing: "+h.workspace())
		}
		// Without a copy the agent of this segment was never started, and all is as it was.
		return workspace.Snapshot(h.root(), h.segmentCopy(), h.keptFolders())
	case err != nil:
		return err
	}
	return workspace.Restore(h.segmentCopy(), h.root(), h.keptFolders())
}

// stillHeld makes sure, if some time has passed since the claim, that nobody else has the rollout
// by now. This process may have been stopped for a while, and the folders that it is about to
// empty, or to start an agent in, may be in use.
func (h *held) stillHeld() error {
	if time.Since(h.claimed) < h.host.Lease/3 {
		return nil
	}
	held, _, err := h.host.Store.Renew(context.Background())
	if err == nil && !slices.Contains(held, h.claim.RolloutID) {
		return store.ErrFenced
	}
	return err
}

// keepFolders makes durable what a resumed agent or the verifier needs of what the agent has left.
// An agent whose folders cannot be kept has a fault, unless it only waits for its verifier: it must
// not escape its verdict by what it leaves.
func (h *held) keepFolders(out *agent.Outcome) error {
	suspends := out.Interrupts != nil
	if out.Fault != nil || !suspends && h.evaluation.Task == nil {
		return nil
	}
	folders := h.keptFolders()
	if !suspends {
		folders = withoutHome(folders) // the verifier has one of its own
	}
	var err error
	switch {
	case !h.entry.NeedsSandbox() || !h.overImage():
		err = workspace.Sync(h.root(), folders)
	case suspends:
		err = h.keepLayers(copyOf(h.claim.Segment+1), folders)
	default:
		err = h.keepLayers(verifierSnapshot, folders)
	}
	if err == nil {
		return nil
	}
	unkept, err := workspaceFault(err)
	switch {
	case err != nil:
		return err
	case suspends:
		out.Fault = unkept.Fault
	default:
		h.host.Logger.Warn("what the agent has left would not survive a power failure", "rollout", h.claim.RolloutID, "reason", unkept.Fault.Message)
	}
	return nil
}

// snapshots are those of a rollout over an image.
func (h *held) snapshots() *snapshot.Store {
	s := &snapshot.Store{Dir: filepath.Join(h.root(), "snapshots"), Root: h.root(), Overlay: snapshot.OverlayTrusted}
	if os.Geteuid() != 0 {
		s.Overlay = snapshot.OverlayUser
	}
	return s
}

// verifierSnapshot is the snapshot of what the agent has left over an image.
const verifierSnapshot = "verified"

// keepLayers takes a snapshot of what the agent has left over an image. Until the segment is
// committed that of its beginning stays.
func (h *held) keepLayers(name string, folders []string) error {
	if err := h.stillHeld(); err != nil {
		return err
	}
	s := h.snapshots()
	if err := s.Prune(filepath.Base(h.segmentCopy())); err != nil { // an attempt that was never committed may have left one of this name
		return err
	}
	report, err := s.Take(name, folders...)
	if err == nil && len(report.LeftOut) > 0 {
		h.host.Logger.Warn("devices that the agent has made are not kept", "rollout", h.claim.RolloutID, "paths", report.LeftOut)
	}
	return err
}

// restoreLayers is what [workspace.Restore] is for other folders: it makes them what they were, for
// a process that is going to change them. Without a snapshot they are as they were, and one is taken.
func (h *held) restoreLayers(name string, folders []string) error {
	s := h.snapshots()
	if !s.Has(name) {
		if _, err := os.Lstat(filepath.Join(h.root(), workspace.FolderUpper)); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Workspace, "what the rollout has changed in its image is missing: "+filepath.Join(h.root(), workspace.FolderUpper))
		}
		if err := h.keepLayers(name, folders); err != nil {
			return err
		}
	}
	return errors.Join(s.Restore(name), s.Prune(name))
}

func withoutHome(folders []string) []string {
	return slices.DeleteFunc(slices.Clone(folders), func(name string) bool { return name == workspace.FolderHome })
}
