// Package service carries out the requests to evalrun serve, whatever protocol they use: it starts
// runs of eval sets that are named or uploaded, finds and cancels them, and takes deliveries. It
// decides what the configuration serve.yaml allows, once for HTTP, MCP and the job interface.
//
// It knows nothing of requests, tokens or wire formats. It starts no agent: an executor does.
package service

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// Errors that callers decide on. Besides these, a *runner.InputError says why a request cannot be
// done, and what was expected. Every other error is the service's own.
var (
	// ErrConflict means that the idempotency key was used for another request before.
	ErrConflict = errors.New("this idempotency key was used for another request")
	// ErrNotFound means that there is no run, rollout or trigger with the id.
	ErrNotFound = store.ErrNotFound
)

// Options are the dependencies of a service beside its configuration.
type Options struct {
	// Variables are those that agents and jobs may name, Sandbox chooses the sandbox of agents and
	// tasks.
	Variables runner.Variables
	Sandbox   runner.SandboxOptions
}

// Store is the part of a store that a service and its servers need.
type Store interface {
	store.Reader
	store.Listing
	store.Standings
	store.Jobs
	store.MCPTasks
	store.AccessTokens
	store.Changes
	store.Limits
}

// Service carries out the requests of callers. Its methods may be called from several goroutines.
type Service struct {
	runs *runner.Store
	st   Store
	cfg  Config
	o    Options

	events    *Feed[tail]
	redactors redactors
	loader    loader
}

// New makes a service for a store, which the caller still owns.
func New(st *runner.Store, cfg Config, o Options) *Service {
	s := &Service{runs: st, st: st.Internal(), cfg: cfg, o: o}
	s.events = NewFeed(s, 0, s.readTail)
	s.redactors = redactors{st: s.st, variables: o.Variables, runs: map[string]planned{}}
	s.loader = loader{cfg: cfg, o: o, storeDir: st.Dir()}
	return s
}

// Runner is the store in the form that the program uses.
func (s *Service) Runner() *runner.Store { return s.runs }

// Store is the store behind it.
func (s *Service) Store() Store { return s.st }

// Config is the configuration of the service.
func (s *Service) Config() Config { return s.cfg }

// Run is a run with its status.
type Run struct {
	store.Run
	Status schemas.Status
}

func newRun(r store.Run) Run { return Run{Run: r, Status: report.StatusOf(r.Counts)} }

// Run finds a run by its id; ErrNotFound if there is none.
func (s *Service) Run(ctx context.Context, id string) (Run, error) {
	run, err := s.st.Run(ctx, id)
	return newRun(run), err
}

// Head finds a run without counting its rollouts, however many there are; ErrNotFound if there is
// none.
func (s *Service) Head(ctx context.Context, id string) (store.Run, error) {
	return s.st.RunHead(ctx, id)
}

// Cancel cancels the rest of a run, and returns the number of rollouts that it has cancelled. The
// executor ends running agents, and cancels jobs; local jobs go on. A final run stays as it is.
func (s *Service) Cancel(ctx context.Context, runID string) (int, error) {
	if _, err := s.st.Run(ctx, runID); err != nil {
		return 0, err
	}
	return s.runs.Cancel(ctx, runID, runner.CancelOptions{Leave: true})
}

// Results writes the present results document of a run, redacted.
func (s *Service) Results(ctx context.Context, runID string, w io.Writer) error {
	var out bytes.Buffer // a report that is read again begins anew
	if err := s.runs.Report(ctx, runID, s.o.Variables, func(r *runner.Report) error {
		out.Reset()
		return r.Write(&out, "json")
	}); err != nil {
		return err
	}
	_, err := out.WriteTo(w)
	return err
}

// Report calls f with the present report of a run, redacted. It is valid only during the call.
func (s *Service) Report(ctx context.Context, runID string, f func(*runner.Report) error) error {
	return s.runs.Report(ctx, runID, s.o.Variables, f)
}

// Rollout returns all details of one rollout of a run, redacted; ErrNotFound if there is none.
func (s *Service) Rollout(ctx context.Context, runID, rolloutID string) (*report.Detail, error) {
	red, err := s.redactors.of(ctx, runID)
	if err != nil {
		return nil, err
	}
	return report.ReadDetail(ctx, s.st, runID, rolloutID, red)
}

// Folder returns the folder of a rollout's files; ErrNotFound if the run has no such rollout.
func (s *Service) Folder(ctx context.Context, runID, rolloutID string) (report.Folder, error) {
	red, err := s.redactors.of(ctx, runID)
	if err != nil {
		return report.Folder{}, err
	}
	return report.FolderOf(ctx, s.st, runID, rolloutID, red)
}

// Triggers calls f with the triggers of a run, redacted, or of all runs if runID is empty. With all
// it includes triggers that wait no more.
func (s *Service) Triggers(ctx context.Context, runID string, all bool, f func(runner.Trigger) error) error {
	if runID != "" {
		if _, err := s.st.Run(ctx, runID); err != nil {
			return err
		}
	}
	return s.runs.Triggers(ctx, runID, all, f)
}

// ListRuns returns runs, the newest first.
func (s *Service) ListRuns(ctx context.Context, q store.RunQuery) ([]Run, error) {
	found, err := s.st.ListRuns(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]Run, 0, len(found))
	for _, r := range found {
		out = append(out, newRun(r))
	}
	return out, nil
}
