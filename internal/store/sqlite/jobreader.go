package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// asking says that a person is asked and nothing of the run goes on: no rollout runs, can be
// claimed or is delayed.
const (
	openQuestion = "t.run_id = j.run_id AND t.type = '" + store.TriggerTask + "' AND t.state IN ('intended', 'starting', 'waiting')"
	asking       = `j.status = 'working' AND EXISTS (SELECT 1 FROM triggers t WHERE ` + openQuestion + `)
		AND NOT EXISTS (SELECT 1 FROM rollouts o WHERE o.run_id = j.run_id AND (o.state IN ('pending', 'running', 'evaluating') OR o.runnable_at IS NOT NULL))`
	selectJob = `SELECT j.run_id, j.capability, j.submitted_by, j.payload, j.max_retries, j.max_duration, j.deadline, j.submitted_at,
		CASE WHEN ` + asking + ` THEN 'input_required' ELSE j.status END, j.error, j.ended_at, j.due_at, j.seq,
		(SELECT t.spec FROM triggers t WHERE ` + openQuestion + ` ORDER BY t.id LIMIT 1) FROM jobs j`

	// An attempt counts when it begins. Those of a segment that go beyond its first are counted by
	// their rows, but the one that still runs has none.
	selectJobRollouts = `SELECT count(*), count(finished_at), coalesce(sum(state = 'suspended'), 0), coalesce(max(fence), 0),
		coalesce(max(CASE WHEN state IN ('running', 'evaluating') THEN owner END), ''), max(lease_until), max(CASE WHEN lease_until IS NOT NULL THEN renewed_at END),
		coalesce(max((segment > 0) + (state = 'running' AND attempt > 1) + (SELECT count(*) FROM segments s WHERE s.rollout_id = o.rollout_id AND s.attempt > 1)), 0)
		FROM rollouts o WHERE run_id = ?`
)

func scanJob(r scanner) (j store.Job, err error) {
	var retries, deadline, submitted, ended, due sql.NullInt64
	var duration int64
	err = r.Scan(&j.ID, &j.Capability, &j.SubmittedBy, (*[]byte)(&j.Payload), &retries, &duration, &deadline, &submitted,
		&j.Status, &j.Error, &ended, &due, &j.LastEvent, (*[]byte)(&j.Question))
	if retries.Valid {
		n := int(retries.Int64)
		j.MaxRetries = &n
	}
	if j.Status != store.JobInputRequired {
		j.Question = nil
	}
	j.MaxDuration = time.Duration(duration) * time.Microsecond
	j.Deadline, j.SubmittedAt, j.EndedAt, j.DueAt = fromMicros(deadline), fromMicros(submitted), fromMicros(ended), fromMicros(due)
	return j, err
}

// scanJobRollouts adds what is read from the rollouts of a job's run.
func scanJobRollouts(r scanner, j *store.Job) error {
	var lease, renewed sql.NullInt64
	err := r.Scan(&j.Total, &j.Ended, &j.Suspended, &j.Fence, &j.Owner, &lease, &renewed, &j.Attempts)
	j.LeaseUntil, j.RenewedAt = fromMicros(lease), fromMicros(renewed)
	return err
}

// readJob reads a job in the open transaction.
func readJob(t *tx, runID string) (j store.Job, err error) {
	stmt, err := t.prepare(selectJob + " WHERE j.run_id = ?")
	if err != nil {
		return j, err
	}
	ctx := context.Background()
	if j, err = scanJob(stmt.QueryRowContext(ctx, runID)); err != nil {
		return j, missingJob(runID, err)
	}
	if stmt, err = t.prepare(selectJobRollouts); err != nil {
		return j, err
	}
	return j, scanJobRollouts(stmt.QueryRowContext(ctx, runID), &j)
}

func missingJob(runID string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("job %s: %w", runID, store.ErrNotFound)
	}
	return err
}

// Job implements Jobs.
func (s jobs) Job(ctx context.Context, runID string) (j store.Job, err error) {
	defer func() { err = s.db.describe(err) }()
	if j, err = scanJob(s.db.read.QueryRowContext(ctx, selectJob+" WHERE j.run_id = ?", runID)); err != nil {
		return j, missingJob(runID, err)
	}
	return j, scanJobRollouts(s.db.read.QueryRowContext(ctx, selectJobRollouts, runID), &j)
}

// ListJobs implements Jobs.
func (s jobs) ListJobs(ctx context.Context, f store.JobFilter) (out []store.Job, err error) {
	defer func() { err = s.db.describe(err) }()
	where, args := []string{"true"}, []any{}
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if len(f.Statuses) > 0 {
		add(statusIn(f.Statuses))
	}
	if f.Capability != "" {
		add("j.capability = ?", f.Capability)
	}
	if f.Owner != "" {
		add("EXISTS (SELECT 1 FROM rollouts o WHERE o.run_id = j.run_id AND o.owner = ? AND o.state IN ('running', 'evaluating'))", f.Owner)
	}
	if !f.Since.IsZero() {
		add("j.submitted_at >= ?", f.Since.UnixMicro())
	}
	if !f.BeforeTime.IsZero() {
		add("(j.submitted_at, j.run_id) < (?, ?)", f.BeforeTime.UnixMicro(), f.BeforeID)
	}
	rows, err := s.db.read.QueryContext(ctx, selectJob+" WHERE "+strings.Join(where, " AND ")+" ORDER BY j.submitted_at DESC, j.run_id DESC LIMIT ?", append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	if err := each(rows, func(r scanner) error {
		j, err := scanJob(r)
		out = append(out, j)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range out {
		if err := scanJobRollouts(s.db.read.QueryRowContext(ctx, selectJobRollouts, out[i].ID), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// statusIn is the condition that a job has one of some statuses.
func statusIn(statuses []store.JobStatus) string {
	var any []string
	for _, s := range statuses {
		switch {
		case s == store.JobInputRequired:
			any = append(any, "("+asking+")")
		case s == store.JobWorking:
			any = append(any, "(j.status = 'working' AND NOT ("+asking+"))")
		case s.IsTerminal():
			any = append(any, "j.status = '"+string(s)+"'")
		}
	}
	return "(" + strings.Join(append(any, "false"), " OR ") + ")"
}

// JobEvents implements Jobs.
func (s jobs) JobEvents(ctx context.Context, runID string, after int64, types []string, limit int) (out []store.JobEvent, read int64, err error) {
	defer func() { err = s.db.describe(err) }()
	if err := s.db.read.QueryRowContext(ctx, "SELECT seq FROM jobs WHERE run_id = ?", runID).Scan(&read); err != nil {
		return nil, 0, missingJob(runID, err)
	}
	query, args := "SELECT seq, type, payload, trace_context, posted_by, created_at FROM job_events WHERE run_id = ? AND seq > ? AND seq <= ?", []any{runID, after, read}
	if len(types) > 0 {
		query += " AND type IN (?" + strings.Repeat(", ?", len(types)-1) + ")"
		for _, t := range types {
			args = append(args, t)
		}
	}
	rows, err := s.db.read.QueryContext(ctx, query+" ORDER BY seq LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, 0, err
	}
	if err := each(rows, func(r scanner) error {
		e := store.JobEvent{JobID: runID}
		var created sql.NullInt64
		err := r.Scan(&e.Seq, &e.Type, (*[]byte)(&e.Payload), (*[]byte)(&e.TraceContext), &e.PostedBy, &created)
		e.CreatedAt = fromMicros(created)
		out = append(out, e)
		return err
	}); err != nil {
		return nil, 0, err
	}
	if len(out) == limit {
		read = out[limit-1].Seq // what comes after it was not looked at
	}
	return out, max(read, after), nil
}

const nextDueJob = "SELECT min(due_at) FROM jobs WHERE due_at IS NOT NULL"

// NextDueJob implements Jobs.
func (s jobs) NextDueJob(ctx context.Context) (time.Time, error) {
	var due sql.NullInt64
	err := s.db.read.QueryRowContext(ctx, nextDueJob).Scan(&due)
	return fromMicros(due), s.db.describe(err)
}
