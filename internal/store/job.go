package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Jobs keeps the runs that were submitted as jobs, and the log of each of them. CreateRun submits
// one with its run. A job has the id of its run, and ends with it, or before it when it is
// cancelled or its deadline passes: whatever ends it writes the last event of its log in the same
// transaction.
type Jobs interface {
	// RolloutJob returns a rollout as if it were a job of its own, which nobody has submitted.
	RolloutJob(ctx context.Context, rolloutID string) (Job, error)
	// Job returns a job, or ErrNotFound if the run was submitted as none or is not kept as one any
	// more.
	Job(ctx context.Context, runID string) (Job, error)
	// ListJobs returns the jobs that pass a filter, the newest first. It ends early with the job
	// whose payload makes it more than MaxPage.
	ListJobs(ctx context.Context, f JobFilter) ([]Job, error)
	// PostJobEvent appends to the log of a job that has not ended; otherwise ErrJobEnded. If answer
	// is not nil it is delivered in the same transaction; ErrNotAsked says that it was not accepted,
	// and then nothing was written. It returns the event with its number and time.
	PostJobEvent(ctx context.Context, e JobEvent, answer *Delivery) (JobEvent, error)
	// JobEvents returns up to limit events after a number, of the given types or of all if there
	// are none. It ends early before an event that would make it more than MaxPage, unless that is
	// the first.
	JobEvents(ctx context.Context, runID string, after int64, types []string, limit int) (JobLog, error)
	// CancelJob ends a job as cancelled; ErrJobEnded if it has ended. If an agent of its run may be
	// running, EndDueJobs cancels the run after grace; otherwise it is cancelled at once. It
	// returns the job as it was before, but for DueAt.
	CancelJob(ctx context.Context, runID, reason string, grace time.Duration, keepJobsOf ...string) (Job, error)
	// EndDueJobs ends the jobs whose deadline has passed, and cancels the runs of those and of the
	// cancelled ones whose grace is over. It returns their ids. keepJobsOf is that of Cancel.
	EndDueJobs(ctx context.Context, keepJobsOf ...string) (ended []string, err error)
	// NextDueJob is when EndDueJobs will have something to do next; zero means never.
	NextDueJob(ctx context.Context) (time.Time, error)
	// ForgetJobs forgets up to limit jobs that ended longer ago than age, with their logs. Their
	// runs stay.
	ForgetJobs(ctx context.Context, age time.Duration, limit int) (forgotten int, err error)
}

// ErrJobEnded means that a job is in a terminal state, and ErrNotAsked that nothing waits for an
// answer any more.
var (
	ErrJobEnded = errors.New("the job has ended")
	ErrNotAsked = errors.New("nobody waits for the answer any more")
)

// MaxPage is how many bytes of payloads are read at once.
const MaxPage = 8 << 20

// JobStatus is the status of a job.
type JobStatus string

// The statuses. A job is JobInputRequired while a person is asked and nothing of its run goes on.
const (
	JobWorking       JobStatus = "working"
	JobInputRequired JobStatus = "input_required"
	JobCompleted     JobStatus = "completed"
	JobFailed        JobStatus = "failed"
	JobCancelled     JobStatus = "cancelled"
)

// IsTerminal reports whether a job with the status has ended.
func (s JobStatus) IsTerminal() bool {
	return s == JobCompleted || s == JobFailed || s == JobCancelled
}

// DeadlineExceeded is the error of a job whose deadline has passed.
const DeadlineExceeded = "deadline_exceeded"

// TriggerTask is the type of the triggers that a person answers.
const TriggerTask = "TASK"

// NewJob is the job that a run is submitted as. It never changes.
type NewJob struct {
	Capability  string
	SubmittedBy string
	Payload     json.RawMessage
	// MaxRetries is how often a segment is repeated; nil if the eval set says it.
	MaxRetries *int
	// MaxDuration is the working time that a rollout may have; 0 if the eval set says it.
	MaxDuration time.Duration
	// Deadline is when the job ends at the latest; zero means never. If it has passed the run is
	// cancelled by the transaction that creates it.
	Deadline time.Time
}

// Job is a run that was submitted as a job.
type Job struct {
	NewJob
	// ID is that of the run. SubmittedAt is set by CreateRun.
	ID string
	// RolloutOf is the run of which RolloutJob has shown a rollout; empty for a job.
	RolloutOf string
	// Result is an object with output and score of a rollout that has completed.
	Result      json.RawMessage
	SubmittedAt time.Time
	// Status is JobWorking or JobInputRequired until CancelJob, EndDueJobs or the end of the run
	// sets a terminal one, with EndedAt and Error. Error is empty if there is nothing to say.
	Status  JobStatus
	Error   string
	EndedAt time.Time
	// DueAt is when EndDueJobs acts on the job; zero if never.
	DueAt time.Time
	// LastEvent is the number of the last event of the log.
	LastEvent int64

	// The fields below are read from the rollouts of the run.

	// Owner is a holder of one of them, LeaseUntil and RenewedAt are of the latest lease; zero if
	// nobody holds any.
	Owner                 string
	LeaseUntil, RenewedAt time.Time
	// Fence is the greatest fencing token, Attempts the most attempts that any of them has had: a
	// suspension is none.
	Fence    int64
	Attempts int
	// Total counts the rollouts, Ended those that have completed or faulted, Suspended those that
	// wait.
	Total, Ended, Suspended int
	// Question is the spec of the first open question while the status is JobInputRequired.
	Question json.RawMessage
}

// Size is how many bytes of documents the job has.
func (j Job) Size() int { return len(j.Payload) + len(j.Question) + len(j.Result) }

// JobFilter chooses jobs. A field that is zero chooses all.
type JobFilter struct {
	Statuses    []JobStatus
	Capability  string
	Owner       string
	SubmittedBy string
	Since       time.Time
	// BeforeTime and BeforeID are SubmittedAt and ID of the last job of the page before.
	BeforeTime time.Time
	BeforeID   string
	Limit      int
}

// JobLog is a part of the log of a job.
type JobLog struct {
	Events []JobEvent
	// Read is the number up to which the log was read, also where no event is of the types.
	Read int64
	// More says that the log goes on after what was read.
	More bool
	// Ended says that the job has ended, and that no event follows.
	Ended bool
}

// JobEvent is an entry of the log of a job. It never changes.
type JobEvent struct {
	JobID string
	// Seq counts the events of the job from 1. PostJobEvent sets it, and CreatedAt.
	Seq       int64
	CreatedAt time.Time
	Type      string
	// Payload is any JSON value, TraceContext an object; nil if there is none.
	Payload      json.RawMessage
	TraceContext json.RawMessage
	// PostedBy is who posted it; empty if the store wrote it.
	PostedBy string
}

// Size is how many bytes of documents the event has.
func (e JobEvent) Size() int { return len(e.Type) + len(e.Payload) + len(e.TraceContext) }
