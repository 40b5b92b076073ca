package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/store"
)

// segmentEnd turns an outcome into the segment's end that is committed. It makes the segment's
// files durable and, if the rollout goes on later, its folders.
func (r *Rollout) segmentEnd(ctx context.Context, out agent.Outcome) (store.SegmentEnd, error) {
	limits := r.held.run.Plan.Set.Limits
	end := store.SegmentEnd{SuspendTimeout: r.held.run.Plan.SuspendTimeout(time.Now()), Queued: r.queued}
	var err error
	if end.Files, err = r.held.keepFiles(out.Files); err != nil {
		return end, err
	}
	if played := r.mocks.Played(); played != nil {
		if out.Info == nil {
			out.Info = &record.Info{}
		}
		out.Info.Mocks = &record.Mocks{Calls: played.Calls, Unmatched: played.Unmatched}
		before, err := r.held.playedBefore(ctx)
		if err != nil {
			return end, err
		}
		out.Info.Mocks.Usage = r.held.writtenUsage(played.Calls, before)
	}
	if err := r.mocks.Failed(); err != nil && out.Fault == nil {
		out.Fault = fault.New(fault.Model, err.Error())
	}
	if out.Info != nil {
		info, err := json.Marshal(out.Info)
		if err != nil {
			return end, err
		}
		end.Info = r.held.run.Redact.JSON(info)
		end.Held = time.Duration(out.Info.HeldMs) * time.Millisecond
	}
	r.keepToBudget(ctx, &out)
	if out.Limit != nil && r.held.evaluation.Task == nil {
		out.Fault = out.Limit // without a verifier nobody can tell what the output is worth
	}
	if waits := r.held.claim.Suspensions - out.Batched; out.Interrupts != nil && !out.InBatch() && waits >= limits.Suspensions {
		out.Fault = fault.Newf(fault.Suspensions, "the rollout was suspended %d times (limits.suspensions)",
			limits.Suspensions)
	}
	if end.Kept, err = (keptFolders{r.held}).keep(ctx, &out); err != nil {
		return end, err
	}
	switch {
	case out.Fault != nil:
		r.failedEnd(ctx, &end, out.Fault)
		if out.Output != nil {
			err = os.WriteFile(filepath.Join(r.held.segmentDir(), fileRefused), nil, 0o600)
		}
	case out.Interrupts != nil:
		end.Outcome = store.OutcomeSuspended
		end.Triggers, err = r.newTriggers(ctx, out.Interrupts)
	default:
		// The output is stored without secrets, because a process that does not know them may show
		// it.
		end.Outcome, end.Output = store.OutcomeCompleted, r.held.run.Redact.JSON(out.Output)
	}
	return end, err
}

// failedEnd decides what follows from a fault: the end of the rollout, or another attempt.
func (r *Rollout) failedEnd(ctx context.Context, end *store.SegmentEnd, f *fault.Fault) {
	end.Outcome = store.OutcomeFailed
	end.Fault = fault.New(f.Category, r.held.run.Redact.String(f.Message))
	switch {
	case errors.Is(context.Cause(ctx), ErrCancelled):
		end.Outcome, end.Fault = store.OutcomeCancelled, nil
	case ctx.Err() != nil:
		end.Outcome = store.OutcomeInterrupted
	default:
		again := r.held.run.Plan.Set.Retry
		hopeless := f.Category == fault.Timeout && r.timeSpent(end.Held)
		end.Retry = r.held.claim.Failures < again.Max && retryable(again.On, f.Category) && !hopeless
		if end.Retry {
			end.RetryAfter = retry.Backoff(again.Backoff, again.MaxBackoff, r.held.claim.Failures)
		}
	}
}

// neverRetried holds the faults that another attempt cannot repair.
var neverRetried = map[fault.Category]bool{
	fault.StartUnknown: true, fault.Unresumable: true, fault.Suspensions: true, fault.SuspendTimeout: true,
	fault.NotRunnable: true, fault.Workspace: true, fault.Budget: true,
}

func retryable(on []string, category fault.Category) bool {
	if neverRetried[category] {
		return false
	}
	for _, c := range on {
		if c == "*" || c == string(category) {
			return true
		}
	}
	return false
}

// keepFiles makes the files of the segment durable and returns their digests.
func (h *held) keepFiles(names []string) ([]store.File, error) {
	if len(names) == 0 {
		return nil, nil
	}
	dir := h.segmentDir()
	files := make([]store.File, len(names))
	var paths []string
	for i, name := range names {
		var err error
		if files[i], err = digest(dir, name); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, name)
		for paths = append(paths, path); filepath.Dir(path) != dir; path = filepath.Dir(path) {
			paths = append(paths, filepath.Dir(path)) // the file is in the folder of a step
		}
	}
	// The folders from the attempt's up to that of the run's rollouts may all be new.
	for range 4 {
		paths = append(paths, dir)
		dir = filepath.Dir(dir)
	}
	return files, h.host.Syncer.Sync(paths...)
}

// buffers holds the buffers into which files are read for their digests.
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
