package runner

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

// CreateOptions say how a run is made from an eval set.
type CreateOptions struct {
	// RunID is the id of the run. If the run exists already, Create attaches to it. Empty makes a new
	// id.
	RunID string
	// AsPlanned attaches to a run of the same eval set even if the set has changed since.
	AsPlanned bool
	// RetryOf names a run: only the rollouts that faulted in it are run again. FailedOf also names
	// one: only the evaluations are run that, for each agent, have not passed in it, or had a fault or
	// an evaluator that failed. LastFailed is FailedOf the newest run of the eval set.
	RetryOf    string
	FailedOf   string
	LastFailed bool
	// KeepWorkspaces keeps the homes and workspaces of the agents when the run is final.
	KeepWorkspaces bool
	// CommandLine, if not empty, is how evalrun was called, without the flags that choose agents and
	// evaluations. Reports make from it the command that repeats an evaluation.
	CommandLine []string
	// Priority is above that of other runs of the store if this one goes before them.
	Priority int
	// FailFast cancels the rest of the run when a rollout has faulted, or has no score that passes.
	FailFast bool
	// Request is the digest of the request that asks for the run, if there was one. It is kept with
	// the plan.
	Request string
	// Deadline is when the caller gives up waiting for the run, zero if never. Nothing is made after
	// it. It goes with the jobs that the rollouts start, as the deadline of Job does.
	Deadline time.Time
	// Job, if not nil, is the job that the run is submitted as; it is for evalrun's own service.
	Job *store.NewJob
}

// runIDPattern matches the valid values of CreateOptions.RunID, which becomes the name of a folder.
// It is compiled on first use: that takes too long for the start of every process.
var runIDPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
})

// Check reports what is wrong with the options.
func (o CreateOptions) Check() error {
	if o.RunID != "" && !runIDPattern().MatchString(o.RunID) {
		return inputError("--run-id: expected up to 128 letters, digits, dots, hyphens and underscores, the first one a letter or a digit, got %q",
			o.RunID)
	}
	if o.RunID == Latest {
		return inputError("--run-id: %s is the name of the newest run, whichever that is; give another id", Latest)
	}
	if o.Priority < -1_000_000 || o.Priority > 1_000_000 {
		return inputError("--priority: expected a number from -1000000 to 1000000, got %d", o.Priority)
	}
	if o.AsPlanned && o.RunID == "" {
		return inputError("--as-planned has a meaning only with --run-id")
	}
	given := 0
	for _, is := range []bool{o.RetryOf != "", o.FailedOf != "", o.LastFailed} {
		if is {
			given++
		}
	}
	if given > 1 {
		return inputError("expected one of --retry-of, --failed-of and --last-failed, got %d of them", given)
	}
	return nil
}

// Created is a run that exists and can be worked on.
type Created struct {
	RunID             string
	EvaluationSetName string
	// New says that this call created the run.
	New bool
	// Rollouts is the number of planned rollouts.
	Rollouts int
	// Notes are messages for the user about files that the plan does not have.
	Notes []string
}

// Create plans a run of an eval set and stores the plan. An eval set makes one run; load it again
// for another one.
func (s *Store) Create(ctx context.Context, e *EvalSet, o CreateOptions) (Created, error) {
	if err := o.Check(); err != nil {
		return Created{}, err
	}
	req, err := e.request(ctx, s, o)
	if err != nil {
		return Created{}, err
	}
	if req.Deadline = o.Deadline; o.Job != nil && !o.Job.Deadline.IsZero() &&
		(req.Deadline.IsZero() || o.Job.Deadline.Before(req.Deadline)) {
		req.Deadline = o.Job.Deadline
	}
	if !o.Deadline.IsZero() && !time.Now().Before(o.Deadline) {
		return Created{}, inputError("nothing is started: the deadline of whoever asks for the run, %s, has passed",
			o.Deadline.UTC().Format(time.RFC3339))
	}
	req.Origin.GitCommit, req.Origin.Version, req.Origin.Request =
		s.commits.Of(ctx, req.BaseDir), s.opts.Version, o.Request
	if req.Origin.GitCommit != "" {
		req.Origin.GitDirty = s.commits.Dirty(ctx, req.BaseDir)
	}
	if req.Origin.CommandLine = o.CommandLine; len(o.CommandLine) > 0 {
		req.Origin.AgentOptions = e.opts.Agents
	}
	plan, err := plans.New(req, s.Dir())
	if err != nil {
		return Created{}, err
	}
	plan.Job, plan.Priority = jobOf(o.Job, req.Set), o.Priority
	notes, err := s.keepFolder(ctx, &plan, req)
	if err != nil {
		return Created{}, err
	}
	created, err := s.st.CreateRun(ctx, plan)
	if err != nil {
		return Created{}, err
	}
	if !created {
		if err := (attachment{s.st, plan}).check(ctx, o.AsPlanned); err != nil {
			return Created{}, err
		}
	}
	s.Wake(plan.RunID)
	return Created{RunID: plan.RunID, EvaluationSetName: plan.EvaluationSetName, New: created,
		Rollouts: len(plan.Rollouts), Notes: notes}, nil
}

// jobOf fills in what a job leaves open from the eval set.
func jobOf(job *store.NewJob, set *eval.Set) *store.NewJob {
	if job == nil {
		return nil
	}
	out := *job
	if out.MaxRetries == nil {
		out.MaxRetries = &set.Retry.Max
	}
	out.MaxDuration = cmp.Or(out.MaxDuration, set.Limits.Timeout)
	return &out
}

// attachment is a plan whose run exists already.
type attachment struct {
	st   store.Reader
	plan store.Plan
}

// check makes sure that the existing run is the one that was to be created.
func (a attachment) check(ctx context.Context, asPlanned bool) error {
	plan := a.plan
	there, err := a.st.Run(ctx, plan.RunID)
	if err != nil {
		return err
	}
	if there.EvaluationSetID != plan.EvaluationSetID {
		return inputError("--run-id %s: that run is of the eval set %q, not of %q; give this one another id", plan.RunID,
			there.EvaluationSetID, plan.EvaluationSetID)
	}
	if asPlanned {
		return nil
	}
	return a.same(ctx)
}

// same makes sure that the existing run has this plan. Otherwise it would go on with other
// evaluations or thresholds than the given ones.
func (a attachment) same(ctx context.Context) error {
	stored, err := a.st.Plan(ctx, a.plan.RunID)
	if err != nil {
		return err
	}
	var evaluations []store.Evaluation
	if err := a.st.Snapshot(ctx, a.plan.RunID, func(v store.View) error {
		evaluations = nil
		return v.Evaluations(func(e store.Evaluation) error {
			evaluations = append(evaluations, e)
			return nil
		})
	}); err != nil {
		return err
	}
	changes, err := plans.Changes(stored, evaluations, a.plan)
	if err != nil || len(changes) == 0 {
		return err
	}
	const most = 10
	if more := len(changes) - most; more > 0 {
		changes = append(changes[:most], fmt.Sprintf("and %d more", more))
	}
	return inputError("--run-id %s: that run was planned with other values than these: %s; give this one another id, or go on as it was planned with --as-planned",
		a.plan.RunID, redact.Line(strings.Join(changes, ", ")))
}
