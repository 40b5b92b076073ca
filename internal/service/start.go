package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// maxKey is how long an idempotency key may be.
const maxKey = 255

// StartRequest asks for a run. Its digest is made of its JSON, without the fields that JSON leaves
// out.
type StartRequest struct {
	// EvalSet names a set of the configuration; Upload is a set itself, as JSON. Exactly one is given.
	EvalSet string          `json:"evalSet,omitempty"`
	Upload  json.RawMessage `json:"upload,omitempty"`
	// Agents, if there are any, run the set in place of its own. They name agents of the set or of the
	// configuration.
	Agents []string `json:"agents,omitempty"`
	// Epochs is how often each evaluation runs; 0 means as often as the set says.
	Epochs int `json:"epochs,omitempty"`
	// EvalIDs chooses evaluations; none means all.
	EvalIDs []string `json:"evalIds,omitempty"`
	// Inputs, if not nil, is an object whose members replace those of the same names in the inputs of
	// every evaluation.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// MaxRetries, if not nil, is the set's retry.max, and RetryOn, if not nil, its retry.on.
	MaxRetries *int     `json:"maxRetries,omitempty"`
	RetryOn    []string `json:"retryOn,omitempty"`
	// MaxDuration, if not 0, is the working time that a rollout may take.
	MaxDuration time.Duration `json:"maxDurationNs,omitempty"`
	// Job, if not nil, is the job that the run is submitted as. Its retries and times are only shown,
	// except for its deadline.
	Job *store.NewJob `json:"job,omitempty"`
	// Left, if not nil, is how much time the caller itself has left. It bounds MaxDuration and the
	// deadline of the job. A repeated request may have less.
	Left *time.Duration `json:"-"`

	// IdempotencyKey makes repeated requests one run; an empty key makes a new run each time. Keys
	// belong to the caller By, and are valid as long as the run is in the store.
	IdempotencyKey string `json:"-"`
	// By is the caller.
	By string `json:"-"`
}

// Started is a run that was requested.
type Started struct {
	RunID string
	// New says that this request created the run.
	New bool
	// Warnings are problems of an uploaded eval set that are not errors, one line each.
	Warnings []string
}

// Start makes the requested run, which is durable when Start returns; the executor works on it. The
// error is ErrConflict, a *runner.InputError that explains what is wrong with the request, or one
// of the service's own.
func (s *Service) Start(ctx context.Context, q StartRequest) (Started, error) {
	digest, err := q.digest()
	if err != nil {
		return Started{}, err
	}
	o := runner.CreateOptions{Request: digest}
	if q.IdempotencyKey != "" {
		o.RunID, o.AsPlanned = s.RunID(q.By, q.IdempotencyKey), true
		if found, err := s.started(ctx, o.RunID, digest); err != nil || found {
			return Started{RunID: o.RunID}, err
		}
	}
	q = q.within(time.Now())
	o.Job = q.Job
	set, err := s.loader.load(q)
	if err != nil {
		return Started{}, err
	}
	created, err := s.runs.Create(ctx, set, o)
	if q.IdempotencyKey != "" && !created.New { // another request with the key was faster, or this has failed
		if found, foundErr := s.started(ctx, o.RunID, digest); foundErr != nil || found {
			return Started{RunID: o.RunID}, foundErr
		}
	}
	if err != nil {
		return Started{}, err
	}
	out := Started{RunID: created.RunID, New: created.New}
	if q.Upload != nil && set.Warnings != "" {
		out.Warnings = strings.Split(set.Warnings, "\n")
	}
	return out, nil
}

// within limits the times of a request to the time that its caller has left.
func (q StartRequest) within(now time.Time) StartRequest {
	if q.Job == nil {
		return q
	}
	job := *q.Job
	q.Job = &job
	if q.Left == nil {
		return q
	}
	if end := now.Add(*q.Left); job.Deadline.IsZero() || end.Before(job.Deadline) {
		job.Deadline = end
	}
	if *q.Left > 0 && (q.MaxDuration == 0 || *q.Left < q.MaxDuration) {
		q.MaxDuration, job.MaxDuration = *q.Left, *q.Left
	}
	return q
}

// RunID is the id of the run that a caller starts with an idempotency key.
func (s *Service) RunID(by, key string) string { return store.KeyedRunID(s.st.ID(), by, key) }

// started reports whether a run exists, and returns ErrConflict if another request has made it.
func (s *Service) started(ctx context.Context, runID, digest string) (bool, error) {
	stored, err := s.st.Plan(ctx, runID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return false, err
	}
	if plan.Origin.Request != digest {
		return false, fmt.Errorf("%w; the run is %s", ErrConflict, runID)
	}
	return true, nil
}

// digest identifies the content of a request, independent of its caller and key.
func (q StartRequest) digest() (string, error) {
	switch {
	case (q.EvalSet == "") == (q.Upload == nil):
		return "", inputError("expected either the name of an eval set or an eval set itself")
	case len(q.IdempotencyKey) > maxKey:
		return "", inputError("expected an idempotency key of at most %d characters, got %d", maxKey, len(q.IdempotencyKey))
	case q.EvalIDs != nil && len(q.EvalIDs) == 0:
		return "", inputError("evalIds: expected the id of an evaluation at least; leave it out to run all")
	case q.Epochs < 0 || q.Epochs > runner.MaxEpochs:
		return "", inputError("epochs: expected a whole number from 1 to %d, got %d", runner.MaxEpochs, q.Epochs)
	}
	for i, name := range q.Agents {
		if slices.Contains(q.Agents[:i], name) {
			return "", inputError("agents: %s is there twice", quote(name))
		}
	}
	data, err := json.Marshal(q)
	if err != nil {
		return "", inputError("the request is no JSON: %w", err)
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

func inputError(format string, args ...any) error {
	return &runner.InputError{Err: fmt.Errorf(format, args...)}
}

// JobPayload is the payload of a job that runs an eval set.
type JobPayload struct {
	// EvalSet is the name of the set, if that is not the job's capability.
	EvalSet string          `json:"evalSet"`
	Agent   string          `json:"agent"`
	Epochs  *int            `json:"epochs"`
	EvalIDs *[]string       `json:"evalIds"`
	Inputs  json.RawMessage `json:"inputs"`
	// Token belongs to an evalrun that submits the job and finds it by the token. It is only shown.
	Token json.RawMessage `json:"_evalrun"`
}

// ReadJobPayload reads the payload of a job. With a name the job runs the eval set of that name,
// and otherwise the one that the payload names. The error is for the submitter of the job.
func ReadJobPayload(data json.RawMessage, name string) (q StartRequest, err error) {
	var p JobPayload
	expected := "agent, epochs, evalIds and inputs, or some of them"
	if name == "" {
		expected = "evalSet, and " + expected
	}
	if err := jsonobj.Decode(data, &p); err != nil {
		return q, fmt.Errorf("submitted_payload: %w; expected %s", err, expected)
	}
	switch {
	case name != "" && p.EvalSet != "":
		return q, fmt.Errorf(`submitted_payload: unknown field "evalSet": the job runs the eval set %s; expected %s`, name,
			expected)
	case name == "" && p.EvalSet == "":
		return q, fmt.Errorf("submitted_payload: expected %s", expected)
	case p.Epochs != nil && *p.Epochs < 1:
		return q, errors.New("submitted_payload: epochs must be at least 1")
	case p.EvalIDs != nil && len(*p.EvalIDs) == 0:
		return q, errors.New("submitted_payload: evalIds names no evaluation; leave it out to run all")
	}
	if q.EvalSet = name; name == "" {
		q.EvalSet = p.EvalSet
	}
	if p.Agent != "" {
		q.Agents = []string{p.Agent}
	}
	if p.Epochs != nil {
		q.Epochs = *p.Epochs
	}
	if p.EvalIDs != nil {
		q.EvalIDs = *p.EvalIDs
	}
	if !jsonobj.IsNull(p.Inputs) {
		q.Inputs = p.Inputs
	}
	return q, nil
}
