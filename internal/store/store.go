// Package store defines how runs are stored: the words (runs, rollouts, segments, triggers,
// deliveries, results, events) and, in small interfaces, what one can do with a store. Users of a
// store ask for the interfaces that they need; there is none of everything. Package rules is the
// implementation, over the databases that packages sqlite and postgres know; the suite in storetest
// says what any implementation must do.
//
// Every method that changes something is one transaction, durable when it returns; only Claim and
// TriggerPending need not survive a power cut. A rollout is changed only by its holder, who got a
// [Token] from Claim. A holder that was overtaken gets [ErrFenced] and must drop what it was doing.
//
// The package knows nothing of agents, sources or evaluators: specs, payloads and results are JSON
// to it. Of eval it uses only the State of a rollout.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// Errors that callers decide on.
var (
	// ErrFenced means that the rollout or trigger has another holder by now, or has ended: nothing
	// was written.
	ErrFenced = errors.New("the lease was lost")
	// ErrNotFound means that there is no run, rollout or trigger with the id.
	ErrNotFound = errors.New("not found")
	// ErrNotFinal means that a run cannot be removed because a rollout of it can still change.
	ErrNotFinal = errors.New("the run is not final")
	// ErrClosed means that the store was closed in the meantime.
	ErrClosed = errors.New("the store is closed")
	// ErrHeld means that another process works on a run, ErrRunExists that it is there already.
	ErrHeld      = errors.New("another process works on it")
	ErrRunExists = errors.New("it is in the store already")
	// ErrElsewhere means that files of a run, without which it cannot go on, are on another machine.
	ErrElsewhere = errors.New("files are missing here")
	// ErrUnusable means that what a user has given cannot be opened as a store, and why.
	ErrUnusable = errors.New("it cannot be opened")
	// ErrMoved means that what is in the store's place is not the store that was opened.
	ErrMoved = errors.New("it was moved, deleted or replaced while this process used it")
)

// Never is the time until something that is never due. Other times until something is due are
// counted from now by the clock of the store, because the callers' clocks may differ.
const Never time.Duration = math.MaxInt64

// Runs makes runs and removes them.
type Runs interface {
	// CreateRun stores a plan. If a run with the id exists already nothing is changed and created
	// is false.
	CreateRun(ctx context.Context, p Plan) (created bool, err error)
	// Remove removes everything that the store knows of a final run; ErrNotFinal of any other.
	Remove(ctx context.Context, runID string) error
}

// Changes tells those who wait for it that something has changed.
type Changes interface {
	// Changed returns a channel that is closed at the next commit of any process that changes a
	// run, or any run if runID is empty. Take it before you read the run. It may be closed for
	// nothing, and up to 5 s late for a commit of another process.
	Changed(runID string) <-chan struct{}
}

// Place says which store it is, and where its files are.
type Place interface {
	// ID is the store's own id, made with it.
	ID() string
	// Dir is the folder under which the store's files are, absolute.
	Dir() string
	// Files is the id of that folder if each machine may have one of its own; empty if the store is
	// the folder.
	Files() string
	// InPlace returns ErrMoved if another store, or none, is where this one was opened. Claim and
	// ClaimTriggers check it as well. Callers check it before they write a file of the store.
	InPlace() error
}

// Reader reads what is in a store. It changes nothing.
type Reader interface {
	Place

	// Run returns one run.
	Run(ctx context.Context, runID string) (Run, error)
	// Runs returns all runs, the newest first.
	Runs(ctx context.Context) ([]Run, error)
	// OpenRuns returns the number of the last event of every run that is not final.
	OpenRuns(ctx context.Context) (map[string]int64, error)
	// RunOf returns the id of a rollout's run.
	RunOf(ctx context.Context, rolloutID string) (string, error)
	// Plan returns the plan of a run, without its evaluations.
	Plan(ctx context.Context, runID string) (Plan, error)
	// RolloutIDs returns the ids of a run's rollouts in the order of the plan.
	RolloutIDs(ctx context.Context, runID string) ([]string, error)
	// Segments returns every attempt of every segment of a rollout, in order.
	Segments(ctx context.Context, rolloutID string) ([]Segment, error)
	// Triggers calls f for every trigger that has not ended (with all, for every one), oldest
	// first.
	Triggers(ctx context.Context, runID string, all bool, f func(Trigger) error) error
	// Trigger returns one trigger by its id, or by a beginning or an end of it that no other has, of
	// at least 4 characters. The error of an ambiguous one names the candidates.
	Trigger(ctx context.Context, id string) (Trigger, error)
	// Deliveries returns everything that was delivered for a trigger, in the order in which it
	// came: the one that was accepted, duplicates, and what came late.
	Deliveries(ctx context.Context, triggerID string) ([]Delivered, error)
	// Events returns up to limit events of a run after a sequence number.
	Events(ctx context.Context, runID string, after int64, limit int) ([]Event, error)

	// Snapshot calls f with a consistent view of one run. If the connection with the database is lost
	// while f reads, f is called again with another view: it must begin anew, and not print before it
	// has read everything. An error of f that is none of the view is final.
	Snapshot(ctx context.Context, runID string, f func(View) error) error
	// Activity says what goes on in the runs that anybody works on. Nobody works on those that are
	// missing.
	Activity(ctx context.Context) (map[string]Activity, error)
	// Backlog says what is left to do, of one run or of all.
	Backlog(ctx context.Context, runID string) (Backlog, error)
	// NextDue is the NextDue of Backlog, as far as no lease of somebody else has to end for it. It
	// costs the same however much there is to do.
	NextDue(ctx context.Context, runID string) (time.Time, error)
}

// View is a consistent view of a run.
type View interface {
	Run() Run
	// Evaluations calls f for every evaluation of the plan in its order.
	Evaluations(f func(Evaluation) error) error
	// Rollouts calls f for every rollout in the order of the plan. f owns what it gets.
	Rollouts(f func(RolloutView) error) error
	// Rollout returns one rollout of the run, or ErrNotFound.
	Rollout(rolloutID string) (RolloutView, error)
	// Evaluation is that of a rollout as a rescoring asks it, or with 0 as planned.
	Evaluation(rolloutID string, rescoring int) (json.RawMessage, error)
	// Rescorings are those of the run in order, RescoredEvaluations the evaluations of one of them
	// that take the place of the plan's.
	Rescorings() ([]Rescoring, error)
	RescoredEvaluations(number int, f func(Evaluation) error) error
}

// RolloutView is a rollout with everything that belongs to it.
type RolloutView struct {
	Rollout
	// Evaluation is the one that the results are of: as planned, or as their rescoring has asked it.
	Evaluation json.RawMessage
	// Segments holds every attempt of every segment, Triggers every trigger, in order.
	Segments []Segment
	Triggers []Trigger
	Results  []Result
	RescoringState
}

// Queue claims rollouts, and records what became of them.
type Queue interface {
	// Claim takes up to limit rollouts that can go on, of one run or, if runID is empty, of all.
	// Those whose holder's lease is void come first. Then come those never started, those whose wait
	// is over and those whose backoff is over, as far as the limits have room and this process has
	// their tags: those of runs of higher priority first, then those of the run of which the fewest
	// agents run, of one run the longest runnable. This process keeps
	// what it holds, however late it renews, until it says by Forget that its work on it has ended. A
	// claim whose answer it never got it takes again, as if it had been made now.
	Claim(ctx context.Context, runID string, limit int) ([]Claim, error)
	// Release ends a claim as if it had never been made: of a rollout that was claimed in advance
	// and not begun, or whose evaluators were broken off. The time since the claim counts as
	// queued. The rollout can be claimed again after a pause.
	Release(ctx context.Context, t Token, pause time.Duration) error
	// Renew prolongs the claims that are named, as far as this process still has them. A claim that
	// is not named, because the process never got the answer with it, runs out. It returns the ids
	// of the rollouts that the process still holds, and of those among them that are to be
	// cancelled.
	Renew(ctx context.Context, t Tokens) (held, cancelled []string, err error)
	// Forget says that this process works no more on what it has claimed. It must not use the tokens
	// any more: what it still holds of them it may claim again.
	Forget(t Tokens)
	// CountFailure counts that evalrun itself has failed with a rollout, and returns how often in a
	// row that now is, over all processes. The count begins anew with each segment, with the
	// evaluators, and when the agent has failed in between.
	CountFailure(ctx context.Context, t Token) (int, error)
	// CommitSegment ends a segment: its outcome and all that follows from it.
	CommitSegment(ctx context.Context, t Token, end SegmentEnd) (Committed, error)
	// RecordResult stores what one evaluator said.
	RecordResult(ctx context.Context, t Token, r Result) error
	// Finish ends an evaluated rollout, and stores the last results with its end.
	Finish(ctx context.Context, t Token, score *float64, last ...Result) error
	// FinishFaulted ends a rollout that could not be evaluated.
	FinishFaulted(ctx context.Context, t Token, fault fault.Fault) error
}

// Ledger keeps the calls of tools that may start something that outlives the agent.
type Ledger interface {
	// BeginCall records that the agent of a running rollout is about to call a tool. If there is an
	// equal call whose final result this agent does not have, that one is returned instead, also if
	// the agent of an earlier attempt of the segment had it.
	BeginCall(ctx context.Context, t Token, key CallKey) (Call, error)
	// CallStarted records what a call has started, in place of what was recorded before.
	CallStarted(ctx context.Context, t Token, callID string, work json.RawMessage) error
	// CallWork returns what CallStarted has recorded of a call of a rollout.
	CallWork(ctx context.Context, rolloutID, callID string) (json.RawMessage, error)
	// EndCall records that the agent has the final result of a call.
	EndCall(ctx context.Context, t Token, callID string) error
}

// Mailbox claims triggers, and takes what is delivered for them.
//
// TriggerStarted, TriggerPending and TriggerFailed end a claim. The trigger is due again after next
// or never, but not after its deadline and not in the past. A trigger that was claimed when it was
// overdue is due after next.
type Mailbox interface {
	// ClaimTriggers takes up to limit triggers that are due: to be started, checked, expired or
	// cancelled.
	ClaimTriggers(ctx context.Context, runID string, limit int) ([]TriggerClaim, error)
	// TriggerStarted records that the job of a claimed trigger was started.
	TriggerStarted(ctx context.Context, t TriggerToken, itemKey string, next time.Duration) error
	// TriggerPending records that a claimed trigger still waits.
	TriggerPending(ctx context.Context, t TriggerToken, next time.Duration) error
	// TriggerFailed records that the source of a claimed trigger could not be asked, or its job not
	// be started, or puts it back untried.
	TriggerFailed(ctx context.Context, t TriggerToken, next time.Duration, f TriggerFailure) error
	// CheckNow makes every waiting trigger of a run (of all, if runID is empty) due that is ever
	// checked.
	CheckNow(ctx context.Context, runID string) error
	// CheckTrigger makes one waiting trigger due now.
	CheckTrigger(ctx context.Context, triggerID string) error
	// Deliver hands in a payload for a trigger, or for all that wait for a source and item key. One
	// that matches none is kept for 7 days for triggers still to come. By source and item key it
	// then answers each rollout once.
	Deliver(ctx context.Context, d Delivery) (Receipt, error)
	// Cancel cancels what has not ended of a run, or one rollout. A rollout whose agent may be
	// running ends when its holder, or whoever takes it over, commits the segment, whatever its
	// outcome; all others end at once. The jobs that they wait for become due to be cancelled, but
	// for those of the sources named.
	Cancel(ctx context.Context, runOrRollout string, keepJobsOf ...string) (cancelled int, err error)
}

// WakeUp says what another process has committed.
type WakeUp struct {
	// Runs are the runs that have changed. Others may have as well if Unnamed is set.
	Runs    []string
	Unnamed bool
}
