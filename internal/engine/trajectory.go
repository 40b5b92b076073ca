package engine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// joinTrajectory makes one trajectory of those of all segments, in the rollout's folder. What a later process adds is made anew from the segments,
// so nothing is lost if nobody comes to it.
func (w *worker) joinTrajectory(ctx context.Context) error {
	segments, err := w.o.Store.Segments(ctx, w.claim.RolloutID)
	if err != nil {
		return err
	}
	var parts []string
	for i, g := range segments {
		if g.Outcome == store.OutcomeInterrupted || i+1 < len(segments) && segments[i+1].Number == g.Number {
			continue // it was repeated
		}
		for _, f := range g.Files {
			if filepath.Base(f.Name) == agent.FileTrajectory {
				parts = append(parts, filepath.Join(workspace.SegmentDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID, g.Number, g.Attempt), filepath.FromSlash(f.Name)))
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	to := filepath.Join(workspace.RolloutDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID), agent.FileTrajectory)
	return durable.WriteFile(to, 0o600, func(out io.Writer) error {
		for _, part := range parts {
			in, err := os.Open(part)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			_, err = io.Copy(out, in)
			_ = in.Close() // only read
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// TraceDirs are the folders below that of a segment's attempt in which its agent has left a trace, those of a task's steps in order.
func TraceDirs(dir string, files []store.File) []string {
	var out []string
	for _, f := range files {
		if path.Base(f.Name) == agent.FileTrace {
			out = append(out, filepath.Join(dir, filepath.FromSlash(path.Dir(f.Name))))
		}
	}
	return out
}
