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
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// stillHeld makes sure, if some time has passed since the claim, that no other process holds the
// rollout by now. This process may have been stopped for a while. Then the folders that it is about
// to empty, or in which it starts an agent, may be in use.
func (h *held) stillHeld() error {
	if time.Since(h.claimed) < h.host.Lease/3 {
		return nil
	}
	held, _, err := h.host.Store.Renew(context.Background(), store.Tokens{Rollouts: []store.Token{h.claim.Token}})
	if err == nil && len(held) == 0 {
		return store.ErrFenced
	}
	return err
}

// keptFolders handles the folders of a rollout that survive a suspension.
type keptFolders struct{ held *held }

// names returns their names below the rollout's root.
func (k keptFolders) names() []string {
	if k.held.hasServices() {
		return append(slices.Clone(k.held.layout().Kept()), workspace.FolderVolumes)
	}
	if k.held.entry.Needs().Sandbox {
		return k.held.layout().Kept()
	}
	return []string{workspace.FolderWorkspace}
}

// fileRefused marks the folder of an attempt whose agent has come to its end, but whose output was
// refused, because it has written too much for instance. Another attempt would only find the same
// output in it.
const fileRefused = "refused"

// findAttempt returns the folder of the attempt with which the claimed one goes on; empty if the
// segment begins anew. A rollout of which the workspace is gone cannot be gone on with.
func (h *held) findAttempt() string {
	var dirs []string
	for n := h.claim.Attempt - 1; n > 0; n-- {
		dir := h.attemptDir(h.claim.Segment, n)
		if _, err := os.Lstat(filepath.Join(dir, fileRefused)); err == nil {
			break
		}
		dirs = append(dirs, dir)
	}
	if _, err := os.Lstat(h.workspace()); err != nil {
		return ""
	}
	return h.entry.GoesOn(dirs)
}

// prepare brings the folders into their state at the segment's start. The first segment starts with
// empty folders. Before any other segment begins, a copy is made; a repetition of the segment
// starts from the copy, unless the agent goes on in the folders as they are.
func (k keptFolders) prepare(ctx context.Context) error {
	h := k.held
	if err := h.stillHeld(); err != nil {
		return err
	}
	if h.isPortable() {
		if err := (portable{h}).get(ctx); err != nil {
			return err
		}
	}
	if h.goesOnFrom = h.findAttempt(); h.goesOnFrom != "" {
		return nil
	}
	if h.claim.Segment == 1 {
		for _, name := range k.names() {
			if err := workspace.MakeEmpty(filepath.Join(h.root(), name)); err != nil {
				return err
			}
		}
		return nil
	}
	if h.isPortable() || h.entry.Needs().Sandbox && h.overImage() {
		return layers{h}.restore(filepath.Base(h.segmentCopy()), k.names())
	}
	_, err := os.Lstat(h.segmentCopy())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := (emptyFolders{h.root()}).makeAgain(); err != nil {
			return err
		}
		// The suspension has left a workspace, even if the agent had removed it: see keep.
		if _, err := os.Lstat(h.workspace()); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Workspace, "the workspace that the rollout was suspended with is missing: "+h.workspace())
		}
		// Without a copy the agent of this segment was never started, and all is as it was.
		if err := workspace.Snapshot(h.root(), h.segmentCopy(), k.names()); err != nil {
			return err
		}
		return (emptyFolders{h.root()}).forget()
	case err != nil:
		return err
	}
	return workspace.Restore(h.segmentCopy(), h.root(), k.names())
}

// keep makes the files durable that a resumed agent or the verifier needs. An agent whose folders
// cannot be kept has a fault, unless it only waits for its evaluators: it must not escape its verdict
// by what it leaves.
//
// They are kept in the store as well, if it takes them. The volumes in which services are still at
// work are not: after their agent's end, rollouts with services are scored on this machine alone.
func (k keptFolders) keep(ctx context.Context, out *agent.Outcome) (inStore *store.Kept, err error) {
	h := k.held
	suspends := out.Interrupts != nil
	shares := portable{h}.on() && (suspends || !h.hasServices())
	if out.Fault != nil || !suspends && !shares && h.evaluation.Task == nil {
		return nil, nil
	}
	folders, name := k.names(), copyOf(h.claim.Segment+1)
	if !suspends {
		folders, name = forVerifier(folders), verifierSnapshot
	}
	unkept := func(err error, warning string) error {
		if err == nil {
			return nil
		}
		failed, err := workspaceFault(err)
		switch {
		case err != nil:
			return err
		case suspends:
			out.Fault = failed.Fault
		default:
			h.host.Logger.Warn(warning, "rollout", h.claim.RolloutID, "reason", failed.Fault.Message)
		}
		return nil
	}
	if shares {
		inStore, err = k.share(ctx, name, folders, suspends)
		err = unkept(err, "what the agent has left cannot be kept in the store, and is scored on this machine alone")
	}
	if err != nil || inStore != nil || shares && suspends || !suspends && h.evaluation.Task == nil {
		return inStore, err
	}
	switch err = h.keepRemote(); {
	case err != nil:
	case !h.entry.Needs().Sandbox || !h.overImage():
		if err = workspace.Sync(h.root(), folders); err == nil && suspends {
			err = emptyFolders{h.root()}.note(folders)
		}
	default:
		err = layers{h}.keep(name, folders)
	}
	return nil, unkept(err, "what the agent has left would not survive a power failure")
}

// share keeps in the store what a resumed agent needs, or the evaluators.
func (k keptFolders) share(ctx context.Context, name string, folders []string, suspends bool) (*store.Kept, error) {
	record, work := true, true
	if !suspends {
		record, work = k.held.evaluatorsNeed()
	}
	if work {
		if err := os.MkdirAll(k.held.root(), 0o700); err != nil { // an output that was taken has no folders
			return nil, err
		}
		if err := (layers(k)).keep(name, folders); err != nil {
			return nil, err
		}
	}
	return portable(k).keep(ctx, name, record, work)
}

// forVerifier returns the folders that are kept for the verifier. It has a home of its own, and the
// services are still at work in their volumes.
func forVerifier(folders []string) []string {
	return slices.DeleteFunc(slices.Clone(folders), func(name string) bool {
		return name == workspace.FolderHome || name == workspace.FolderVolumes
	})
}
