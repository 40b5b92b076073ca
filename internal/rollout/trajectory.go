package rollout

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
)

// joinTrajectory joins the trajectories of all segments into one in the rollout's folder. It always
// starts from the segments, so nothing is lost if a process ends before.
func (h *held) joinTrajectory(ctx context.Context) error {
	segments, err := h.host.Store.Segments(ctx, h.claim.RolloutID)
	if err != nil {
		return err
	}
	var parts []string
	for i, g := range segments {
		if g.Outcome == store.OutcomeInterrupted || i+1 < len(segments) && segments[i+1].Number == g.Number {
			continue // the segment was repeated
		}
		for _, f := range g.Files {
			if filepath.Base(f.Name) == record.FileTrajectory {
				parts = append(parts, filepath.Join(h.attemptDir(g.Number, g.Attempt), filepath.FromSlash(f.Name)))
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	to := filepath.Join(h.dir(), record.FileTrajectory)
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
