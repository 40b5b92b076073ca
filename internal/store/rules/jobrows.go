package rules

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// jobRows are the rows of jobs and the logs that belong to them.
type jobRows struct{ tx *Tx }

func (rows jobRows) add(runID string, j store.NewJob) error {
	var retries any
	if j.MaxRetries != nil {
		retries = *j.MaxRetries
	}
	return rows.tx.Exec(
		`INSERT INTO jobs (run_id, capability, submitted_by, payload, max_retries, max_duration, deadline, submitted_at, status, due_at)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'working', ?7)`,
		runID, j.Capability, j.SubmittedBy, document(j.Payload), retries,
		j.MaxDuration.Microseconds(), micros(j.Deadline), rows.tx.now)
}

// end brings a job into a terminal status, with the last event of its log. A job that has ended
// stays as it is, and so does a run that is no job.
func (rows jobRows) end(runID string, status store.JobStatus, reason string, last json.RawMessage) error {
	n, err := rows.tx.change(
		"UPDATE jobs SET status = ?, error = ?, ended_at = ?, due_at = NULL WHERE run_id = ? AND status = 'working'",
		string(status), reason, rows.tx.now, runID)
	if err != nil || n == 0 {
		return err
	}
	_, err = rows.append(store.JobEvent{JobID: runID, Type: string(status), Payload: last})
	return err
}

// runEnded ends the job of a run of which no rollout is left.
func (rows jobRows) runEnded(runID string, counts map[string]int) error {
	if n := counts["faulted"]; n > 0 {
		reason, err := rows.firstFault(runID)
		if err != nil {
			return err
		}
		if total := n + counts["completed"] + counts["cancelled"]; total > 1 {
			reason = fmt.Sprintf("%d of %d rollouts faulted; the first: %s", n, total, reason)
		}
		return rows.end(runID, store.JobFailed, reason, object("error", reason))
	}
	if counts["cancelled"] > 0 {
		return rows.end(runID, store.JobCancelled, "", object("reason", ""))
	}
	return rows.end(runID, store.JobCompleted, "", nil)
}

func (rows jobRows) firstFault(runID string) (string, error) {
	var data []byte
	if err := rows.tx.Row([]any{&data},
		"SELECT fault FROM rollouts WHERE run_id = ? AND state = 'faulted' ORDER BY ordinal LIMIT 1", runID); err != nil {
		return "", err
	}
	f, err := unmarshalFault(data)
	if err != nil || f == nil {
		return "", err
	}
	return f.Error(), nil
}

func object(key, value string) json.RawMessage {
	return marshal(map[string]string{key: value}).([]byte)
}

// append writes the next event of a job's log.
func (rows jobRows) append(e store.JobEvent) (store.JobEvent, error) {
	if err := rows.tx.Row([]any{&e.Seq},
		"UPDATE jobs SET seq = seq + 1 WHERE run_id = ? RETURNING seq", e.JobID); err != nil {
		return e, err
	}
	e.CreatedAt = time.UnixMicro(rows.tx.now).UTC()
	rows.tx.wake, rows.tx.changed[e.JobID] = true, true
	return e, rows.tx.Exec(
		"INSERT INTO job_events (run_id, seq, type, payload, trace_context, posted_by, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
		e.JobID, e.Seq, e.Type, raw(e.Payload), raw(e.TraceContext), e.PostedBy, rows.tx.now)
}

// endDueJob does what is due for one job. It ends the job at its deadline, and cancels its run when
// the grace of its cancellation is over.
func (w *write) endDueJob(runID string, keepJobsOf []string) error {
	var status store.JobStatus
	if err := w.tx.Row([]any{&status},
		"SELECT status FROM jobs WHERE run_id = ? AND due_at <= ?", runID, w.tx.now); err != nil {
		return ignoreMissing(err)
	}
	if status == store.JobWorking {
		if err := w.jobs.end(runID, store.JobFailed, store.DeadlineExceeded,
			object("error", store.DeadlineExceeded)); err != nil {
			return err
		}
	} else if err := w.tx.Exec("UPDATE jobs SET due_at = NULL WHERE run_id = ?", runID); err != nil {
		return err
	}
	_, err := w.segments.cancelAll(runID, keepJobsOf)
	return err
}
