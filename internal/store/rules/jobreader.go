package rules

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// asking is the condition that a person is asked and that nothing of the run goes on: no rollout
// runs, can be claimed or is delayed.
const (
	openQuestion = "t.run_id = j.run_id AND t.type = '" + store.TriggerTask +
		"' AND t.state IN ('intended', 'starting', 'waiting')"
	asking = `j.status = 'working' AND EXISTS (SELECT 1 FROM triggers t WHERE ` + openQuestion + `)
		AND NOT EXISTS (SELECT 1 FROM rollouts o WHERE o.run_id = j.run_id AND (o.state IN ('pending', 'running', 'evaluating') OR o.runnable_at IS NOT NULL))`
	selectJob = `SELECT j.run_id, j.capability, j.submitted_by, j.payload, j.max_retries, j.max_duration, j.deadline, j.submitted_at,
		CASE WHEN ` + asking + ` THEN 'input_required' ELSE j.status END, j.error, j.ended_at, j.due_at, j.seq,
		(SELECT t.spec FROM triggers t WHERE ` + openQuestion + ` ORDER BY t.id LIMIT 1) FROM jobs j`

	// An attempt counts when it begins. Those of a segment that go beyond its first are counted by
	// their rows, but the one that still runs has none.
	selectJobRollouts = `SELECT count(*), count(CASE WHEN state IN ('completed', 'faulted') THEN 1 END), count(CASE WHEN state IN ('suspended', 'scoring') THEN 1 END), coalesce(max(fence), 0),
		coalesce(max(CASE WHEN state IN ('running', 'evaluating') THEN owner END), ''), max(lease_until), max(CASE WHEN lease_until IS NOT NULL THEN renewed_at END),
		coalesce(max(CASE WHEN segment > 0 THEN 1 ELSE 0 END + CASE WHEN state = 'running' AND attempt > 1 THEN 1 ELSE 0 END + (SELECT count(*) FROM segments s WHERE s.rollout_id = o.rollout_id AND s.attempt > 1)), 0)
		FROM rollouts o WHERE `
)

// errPageFull ends the reading of rows at store.MaxPage.
var errPageFull = errors.New("the page is full")

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
	j.Deadline, j.SubmittedAt, j.EndedAt, j.DueAt =
		fromMicros(deadline), fromMicros(submitted), fromMicros(ended), fromMicros(due)
	return j, err
}

// scanJobRollouts adds to a job what the rollouts of its run say.
func scanJobRollouts(r scanner, j *store.Job) error {
	var lease, renewed sql.NullInt64
	err := r.Scan(&j.Total, &j.Ended, &j.Suspended, &j.Fence, &j.Owner, &lease, &renewed, &j.Attempts)
	j.LeaseUntil, j.RenewedAt = fromMicros(lease), fromMicros(renewed)
	return err
}

// readJob reads a job in the open transaction.
func readJob(t *Tx, runID string) (j store.Job, err error) {
	stmt, err := t.prepare(selectJob + " WHERE j.run_id = ?")
	if err != nil {
		return j, err
	}
	ctx := context.Background()
	if j, err = scanJob(stmt.QueryRowContext(ctx, runID)); err != nil {
		return j, missingJob(runID, err)
	}
	if stmt, err = t.prepare(selectJobRollouts + "run_id = ?"); err != nil {
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
	defer func() { err = s.db.describe(err, "read job", runID) }()
	if j, err = scanJob(s.db.queryRow(ctx, selectJob+" WHERE j.run_id = ?", runID)); err != nil {
		return j, missingJob(runID, err)
	}
	return j, scanJobRollouts(s.db.queryRow(ctx, selectJobRollouts+"run_id = ?", runID), &j)
}

// ListJobs implements Jobs.
func (s jobs) ListJobs(ctx context.Context, f store.JobFilter) (out []store.Job, err error) {
	defer func() { err = s.db.describe(err, "list jobs") }()
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
	if f.SubmittedBy != "" {
		add("j.submitted_by = ?", f.SubmittedBy)
	}
	if f.Owner != "" {
		add(
			"EXISTS (SELECT 1 FROM rollouts o WHERE o.run_id = j.run_id AND o.owner = ? AND o.state IN ('running', 'evaluating'))",
			f.Owner)
	}
	if !f.Since.IsZero() {
		add("j.submitted_at >= ?", f.Since.UnixMicro())
	}
	if !f.BeforeTime.IsZero() {
		add("(j.submitted_at, j.run_id) < (?, ?)", f.BeforeTime.UnixMicro(), f.BeforeID)
	}
	rows, err := s.db.read.QueryContext(ctx,
		selectJob+" WHERE "+strings.Join(where, " AND ")+" ORDER BY j.submitted_at DESC, j.run_id DESC LIMIT ?",
		append(args, f.Limit)...)
	if err != nil {
		return nil, err
	}
	size := 0
	if err := each(rows, func(r scanner) error {
		j, err := scanJob(r)
		if err != nil {
			return err
		}
		out = append(out, j)
		if size += j.Size(); size > store.MaxPage && len(out) > 1 {
			return errPageFull
		}
		return nil
	}); err != nil && !errors.Is(err, errPageFull) {
		return nil, err
	}
	for i := range out {
		if err := scanJobRollouts(s.db.queryRow(ctx, selectJobRollouts+"run_id = ?", out[i].ID), &out[i]); err != nil {
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
func (s jobs) JobEvents(
	ctx context.Context, runID string, after int64, types []string, limit int,
) (log store.JobLog, err error) {
	defer func() { err = s.db.describe(err, "read the log of job", runID) }()
	var last int64
	if err := s.db.queryRow(ctx,
		"SELECT seq, status <> 'working' FROM jobs WHERE run_id = ?", runID).
		Scan(&last, &log.Ended); err != nil {
		return log, missingJob(runID, err)
	}
	log.Read = max(last, after)
	if last <= after {
		return log, nil
	}
	query, args :=
		"SELECT seq, type, payload, trace_context, posted_by, created_at FROM job_events WHERE run_id = ? AND seq > ? AND seq <= ?",
		[]any{runID, after, last}
	if len(types) > 0 {
		query += " AND type IN (?" + strings.Repeat(", ?", len(types)-1) + ")"
		for _, t := range types {
			args = append(args, t)
		}
	}
	rows, err := s.db.read.QueryContext(ctx, query+" ORDER BY seq LIMIT ?", append(args, limit)...)
	if err != nil {
		return log, err
	}
	size, full := 0, false
	if err := each(rows, func(r scanner) error {
		e := store.JobEvent{JobID: runID}
		var created sql.NullInt64
		if err := r.Scan(&e.Seq, &e.Type, (*[]byte)(&e.Payload), (*[]byte)(&e.TraceContext),
			&e.PostedBy, &created); err != nil {
			return err
		}
		e.CreatedAt = fromMicros(created)
		if size += e.Size(); size > store.MaxPage && len(log.Events) > 0 {
			full = true
			return errPageFull
		}
		log.Events = append(log.Events, e)
		return nil
	}); err != nil && !full {
		return log, err
	}
	if full || len(log.Events) == limit { // the events after it were not read
		log.Read = log.Events[len(log.Events)-1].Seq
		log.More = log.Read < last
		log.Ended = log.Ended && !log.More
	}
	return log, nil
}

const nextDueJob = "SELECT min(due_at) FROM jobs WHERE due_at IS NOT NULL"

// NextDueJob implements Jobs.
func (s jobs) NextDueJob(ctx context.Context) (time.Time, error) {
	var due sql.NullInt64
	err := s.db.queryRow(ctx, nextDueJob).Scan(&due)
	return fromMicros(due), s.db.describe(err, "find the job that is due next")
}

// RolloutJob implements Jobs.
func (s jobs) RolloutJob(ctx context.Context, rolloutID string) (j store.Job, err error) {
	defer func() { err = s.db.describe(err, "read the job of rollout", rolloutID) }()
	o, err := scanRollout(s.db.read.QueryRowContext(ctx,
		"SELECT "+rolloutColumns+" FROM rollouts o WHERE o.rollout_id = ?", rolloutID))
	if err != nil {
		return j, missingJob(rolloutID, err)
	}
	j = store.Job{
		ID: o.ID, RolloutOf: o.RunID, SubmittedAt: o.CreatedAt, EndedAt: o.FinishedAt, Status: rolloutStatus[o.State],
	}
	if o.Fault != nil {
		j.Error = o.Fault.Error()
	}
	if j.Payload, err = json.Marshal(map[string]any{
		"agent": o.Agent, "evalIds": []string{o.EvaluationID}, "epoch": o.Epoch,
	}); err != nil {
		return j, err
	}
	if err := s.db.read.QueryRowContext(ctx,
		"SELECT evaluation_set_id FROM runs WHERE run_id = ?", o.RunID).
		Scan(&j.Capability); err != nil {
		return j, err
	}
	j.SubmittedBy = "run " + o.RunID
	if err := scanJobRollouts(s.db.read.QueryRowContext(ctx,
		selectJobRollouts+"rollout_id = ?", rolloutID), &j); err != nil {
		return j, err
	}
	if j.Status == store.JobCompleted {
		j.Result, err = s.rolloutResult(ctx, o)
		return j, err
	}
	if j.Suspended == 0 {
		return j, nil
	}
	err = s.db.read.QueryRowContext(ctx,
		`SELECT spec FROM triggers WHERE rollout_id = ?1 AND type = ?2 AND state IN ('intended', 'starting', 'waiting')
		AND NOT EXISTS (SELECT 1 FROM rollouts WHERE rollout_id = ?1 AND runnable_at IS NOT NULL) ORDER BY id LIMIT 1`,
		rolloutID, store.TriggerTask).
		Scan((*[]byte)(&j.Question))
	if errors.Is(err, sql.ErrNoRows) {
		return j, nil
	}
	j.Status = store.JobInputRequired
	return j, err
}

func (s jobs) rolloutResult(ctx context.Context, o store.Rollout) (json.RawMessage, error) {
	result := struct {
		Output json.RawMessage `json:"output"`
		Score  *float64        `json:"score"`
	}{Score: o.Score}
	if err := s.db.read.QueryRowContext(ctx,
		"SELECT output FROM segments WHERE rollout_id = ? AND segment = ? AND attempt = ?", o.ID, o.Segment, o.Attempt).
		Scan((*[]byte)(&result.Output)); err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// rolloutStatus is the status of a rollout that is shown as a job.
var rolloutStatus = map[eval.State]store.JobStatus{
	eval.StatePending: store.JobWorking, eval.StateRunning: store.JobWorking, eval.StateSuspended: store.JobWorking,
	eval.StateEvaluating: store.JobWorking, eval.StateScoring: store.JobWorking,
	eval.StateCompleted: store.JobCompleted, eval.StateFaulted: store.JobFailed, eval.StateCancelled: store.JobCancelled,
}
