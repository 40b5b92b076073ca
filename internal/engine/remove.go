package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// remover is a store from which runs can be removed.
type remover interface {
	store.Reader
	Remove(ctx context.Context, runID string) error
}

// Remove removes a final run with all its files. It removes the files first, so that after an error
// the run is still listed and can be removed again.
func Remove(ctx context.Context, s remover, runID string) error {
	run, err := s.Run(ctx, runID)
	if err != nil {
		return err
	}
	if !run.Final() {
		return fmt.Errorf("run %s: %w", runID, store.ErrNotFinal)
	}
	if err := errors.Join(s.InPlace(), removeWork(ctx, s, runID)); err != nil {
		return err
	}
	if err := s.Triggers(ctx, runID, true, func(t store.Trigger) error {
		return workspace.Remove(files.Of(s).Job(t.ID))
	}); err != nil {
		return err
	}
	if err := workspace.Remove(string(files.Of(s).Run(runID))); err != nil {
		return err
	}
	return s.Remove(ctx, runID)
}

// removeWork removes the homes and workspaces of a final run.
func removeWork(ctx context.Context, s store.Reader, runID string) error {
	ids, err := s.RolloutIDs(ctx, runID)
	if err != nil {
		return err
	}
	elsewhere := filepath.Join(workspace.StateDir(), s.ID())
	_, missing := os.Lstat(elsewhere)
	for _, id := range ids {
		// Most workspaces are empty and quickly removed.
		_ = os.Remove(filepath.Join(files.Of(s).Work(id), workspace.FolderWorkspace))
		err = errors.Join(err, workspace.Remove(files.Of(s).Work(id)))
		if missing == nil {
			err = errors.Join(err, workspace.Remove(filepath.Join(elsewhere, id)))
		}
	}
	return err
}

// Tidy removes the work folders of a run if it is final, unless its plan keeps them.
func Tidy(ctx context.Context, s store.Reader, runID string) error {
	run, err := s.Run(ctx, runID)
	if err != nil || !run.Final() {
		return err
	}
	stored, err := s.Plan(ctx, runID)
	if err != nil {
		return err
	}
	if plan, err := plans.Read(stored); err != nil || plan.KeepWorkspaces {
		return err
	}
	return removeWork(ctx, s, runID)
}
