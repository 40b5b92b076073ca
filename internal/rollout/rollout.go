// Package rollout takes one claimed rollout as far as it goes: to its next suspension, to another
// attempt, or through its evaluators to its end. Each step has a file: claim, segment, suspend,
// resume, evaluate, verify. A decision is in the store before anything follows from it.
//
// The package knows one rollout at a time. The engine decides which one runs when, and looks after
// leases and jobs.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/outputs"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// The causes with which the context of [Rollout.Run] is ended, and the error of a [Slot].
var (
	ErrCancelled = errors.New("the rollout was cancelled")
	ErrLeaseLost = errors.New("the lease could not be renewed")
	// ErrNoSlot says that no slot became free: the rollout was claimed in advance and is
	// released.
	ErrNoSlot = errors.New("there was no slot for the agent")
)

// Store is the part of the store that a rollout needs.
type Store interface {
	store.Reader
	store.Queue
	store.Scoring
	store.Ledger
	store.Blocks
}

// Host holds what the process provides to the rollouts that it works on.
type Host struct {
	Store Store
	// LoadRun returns a run of the store.
	LoadRun func(ctx context.Context, runID string) (*Run, error)
	// JobsChanged is called after a commit that may have left jobs to be started or cancelled.
	JobsChanged func()
	// Resolve returns the value of a ${VAR}.
	Resolve func(name string) (string, bool)
	// AnyRun says that the process works on every run of the store. It then leaves rollouts alone
	// whose variables it lacks; another process may have them.
	AnyRun bool
	// Executable is the evalrun program, which sandboxes start.
	Executable string
	// Lease is how long a claim lasts unless it is renewed.
	Lease  time.Duration
	Logger *slog.Logger
	// Syncer makes the files of segments durable, for several rollouts at once.
	Syncer *durable.Syncer
}

// Slot is a rollout's slot among the agents that may run at once.
type Slot interface {
	// Acquire waits for the slot; ErrNoSlot means that there will be none soon.
	Acquire(ctx context.Context) error
	// Release gives up the slot, or the wait for one. Every call but the first does nothing.
	Release()
}

// Rollout is a claimed rollout that this process works on.
type Rollout struct {
	held *held
	slot Slot
	// leftover is why processes of an earlier holder could not be ended.
	leftover error
	// state is the state of the rollout as it was last committed here.
	state eval.State
	// postponed says why this process cannot run the rollout and has put it back for another.
	postponed string
	// started is when the agent got its slot, zero if it has none; queued is the time since the
	// claim.
	started time.Time
	queued  time.Duration
	// budget is what the rollout may spend on models; nil before its segment.
	budget *agent.Budget
	// mocks plays the tools of the segment; nil if none is played.
	mocks *mock.Player
	// question is that of the output which is kept for later runs; nil if none is.
	question *outputs.Question
	// declared holds the MCP servers of its sandbox as they are declared.
	declared []tasks.MCPServer
}

// New makes a rollout of a claim. leftover says why processes that an earlier holder has left could
// not be ended; nil if there are none.
func New(host *Host, c store.Claim, slot Slot, leftover error) *Rollout {
	return &Rollout{held: &held{host: host, claim: c, claimed: time.Now()}, slot: slot, leftover: leftover, state: c.State}
}

// State returns the state of the rollout as it was last committed here.
func (r *Rollout) State() eval.State { return r.state }

// Postponed says why the rollout was put back because this process cannot run it; empty if it was not.
func (r *Rollout) Postponed() string { return r.postponed }

// Run runs a segment, or only the evaluators if only results are missing. When ctx is done the
// agent is ended; what it has done by then is still committed. An error means that evalrun or its
// store has failed.
func (r *Rollout) Run(ctx context.Context) (err error) {
	failpoint.Hit("rollout.claimed")
	defer r.slot.Release()
	commit := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, r.held.end(commit)) }()
	if r.leftover != nil {
		return r.leftover
	}
	if err = r.held.load(commit); errors.Is(err, plans.ErrLater) {
		return r.postpone(commit, err.Error())
	} else if err != nil {
		return err
	}
	if err = r.held.loadKept(commit); err != nil {
		return err
	}
	if machine := r.held.filesElsewhere(); machine != "" && !r.held.claim.Cancelled {
		return r.postpone(commit, r.held.areElsewhere(machine))
	}
	if mayBeScored(r.held.claim.State) {
		if missing := r.held.host.withoutValue(judgeKeys(r.held.run.Plan, r.held.entry)); missing != nil &&
			r.held.host.AnyRun {
			return r.postpone(commit, lacks(missing))
		}
		r.slot.Release()
		var f *fault.Fault
		if r.held.endIsShared() {
			err = portable{r.held}.getEnd(commit)
		}
		switch {
		case errors.As(err, &f):
			return r.endUnverified(commit, f)
		case err != nil:
			return err
		}
		return r.evaluate(ctx, r.held.claim.Output, nil)
	}
	if r.held.claim.Cancelled {
		return r.endCancelled(commit)
	}
	if missing := r.held.missingVariables(); missing != nil && r.held.host.AnyRun {
		return r.postpone(commit, lacks(missing))
	}
	out, err := r.runSegment(ctx)
	r.slot.Release() // the next agent may start; commits and evaluators are left
	failpoint.Hit("rollout.agentEnded")
	switch {
	case errors.Is(err, ErrNoSlot):
		return r.held.host.Store.Release(commit, r.held.claim.Token, 0)
	case err != nil:
		return err // evalrun has failed, not the agent
	case errors.Is(context.Cause(ctx), ErrLeaseLost):
		// If another process has the rollout already, it runs the segment again.
		return r.PutBack(commit, interrupted(ErrLeaseLost.Error()), 0)
	}
	return r.commitSegment(ctx, out)
}

func lacks(variables []string) string {
	return fmt.Sprintf("this executor lacks ${%s}; pass it with --env or --env-file", strings.Join(variables, "}, ${"))
}

// commitSegment records how a segment ended, and carries out the consequences.
func (r *Rollout) commitSegment(ctx context.Context, out agent.Outcome) error {
	commit := context.WithoutCancel(ctx)
	end, err := r.segmentEnd(ctx, out)
	if err != nil {
		return err
	}
	failpoint.Hit("rollout.filesSynced")
	done, err := r.held.host.Store.CommitSegment(commit, r.held.claim.Token, end)
	if err != nil {
		return err
	}
	r.state, r.held.kept = done.State, store.Kept{Segment: r.held.claim.Segment}
	if end.Kept != nil {
		r.held.kept.Files = end.Kept.Files
	}
	r.keepOutput(end)
	failpoint.Hit("rollout.segmentCommitted")
	scored := mayBeScored(done.State)
	switch {
	case scored:
		err = r.evaluate(ctx, out.Output, end.Files)
	case end.Outcome == store.OutcomeSuspended || done.State.IsTerminal():
		r.held.host.JobsChanged()
	}
	if done.State == eval.StatePending {
		return err // another attempt needs the copy
	}
	if !scored && r.held.entry.Needs().Sandbox {
		err = errors.Join(err, r.held.joinTrajectory(commit)) // evaluate joins the trajectory itself
	}
	if r.held.claim.Segment == 1 {
		return err // no copy was made
	}
	return errors.Join(err, workspace.Remove(r.held.segmentCopy()))
}
