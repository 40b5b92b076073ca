package rules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// jobs implements store.Jobs. Its methods that only read are in jobreader.go.
type jobs struct{ db *db }

// PostJobEvent implements Jobs.
func (s jobs) PostJobEvent(
	ctx context.Context, e store.JobEvent, answer *store.Delivery,
) (out store.JobEvent, err error) {
	err = s.db.writeOp(ctx, "add to the log of job "+e.JobID, func(w *write) (err error) {
		var status store.JobStatus
		if err := w.tx.Row([]any{&status}, "SELECT status FROM jobs WHERE run_id = ?", e.JobID); err != nil {
			return fmt.Errorf("job %s: %w", e.JobID, err)
		}
		if status.IsTerminal() {
			return fmt.Errorf("job %s is %s: %w", e.JobID, status, store.ErrJobEnded)
		}
		if out, err = w.jobs.append(e); err != nil || answer == nil {
			return err
		}
		receipt, err := w.mail.take(*answer)
		if err == nil && len(receipt.Accepted) == 0 {
			err = fmt.Errorf("trigger %s of job %s: %w", answer.TriggerID, e.JobID, store.ErrNotAsked)
		}
		return err
	})
	if err != nil {
		return store.JobEvent{}, err
	}
	return out, nil
}

// CancelJob implements Jobs.
func (s jobs) CancelJob(
	ctx context.Context, runID, reason string, grace time.Duration, keepJobsOf ...string,
) (before store.Job, err error) {
	err = s.db.writeOp(ctx, "cancel job "+runID, func(w *write) (err error) {
		if before, err = readJob(w.tx, runID); err != nil {
			return err
		}
		if before.Status.IsTerminal() {
			return fmt.Errorf("job %s is %s: %w", runID, before.Status, store.ErrJobEnded)
		}
		text := ""
		if reason != "" {
			text = "cancelled: " + reason
		}
		if err := w.jobs.end(runID, store.JobCancelled, text, object("reason", reason)); err != nil {
			return err
		}
		if before.Owner != "" && grace > 0 {
			before.DueAt = time.UnixMicro(w.tx.after(grace)).UTC()
			return w.tx.Exec("UPDATE jobs SET due_at = ? WHERE run_id = ?", w.tx.after(grace), runID)
		}
		before.DueAt = time.Time{}
		_, err = w.segments.cancelAll(runID, keepJobsOf)
		return err
	})
	if err != nil {
		return store.Job{}, err
	}
	return before, nil
}

// EndDueJobs implements Jobs.
func (s jobs) EndDueJobs(ctx context.Context, keepJobsOf ...string) (ended []string, err error) {
	err = s.db.writeOp(ctx, "end jobs that are due", func(w *write) error {
		ended = nil
		if err := w.tx.rows(func(r scanner) error {
			var id string
			err := r.Scan(&id)
			ended = append(ended, id)
			return err
		}, "SELECT run_id FROM jobs WHERE due_at <= ? ORDER BY due_at LIMIT 100", w.tx.now); err != nil {
			return err
		}
		for _, id := range ended {
			if err := w.endDueJob(id, keepJobsOf); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// ForgetJobs implements Jobs.
func (s jobs) ForgetJobs(ctx context.Context, age time.Duration, limit int) (forgotten int, err error) {
	err = s.db.writeOp(ctx, "forget jobs", func(w *write) error {
		const old = "SELECT run_id FROM jobs WHERE ended_at < ? AND due_at IS NULL ORDER BY ended_at LIMIT ?"
		if err := w.tx.Exec("DELETE FROM job_events WHERE run_id IN ("+old+")", w.tx.after(-age), limit); err != nil {
			return err
		}
		n, err := w.tx.change("DELETE FROM jobs WHERE run_id IN ("+old+")", w.tx.after(-age), limit)
		forgotten = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return forgotten, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
