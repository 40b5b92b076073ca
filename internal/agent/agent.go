// Package agent defines what an agent is. An [Agent] runs one segment of a rollout at a time and
// says how it ended: completed, suspended, or failed with a category. An [Entry] describes an agent
// as a file does; the packages below this one run it, and this one imports none of them. The
// formats of trajectories and traces are here, too. It knows nothing of stores, eval sets or
// scores.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// Agent runs segments. Implementations are safe for concurrent use. A segment's own processes are
// gone when Run returns; processes that serve several segments are gone when Close returns.
type Agent interface {
	// Run runs one segment to its end. A failure of the agent is a Fault in the outcome; an error
	// means that evalrun itself has failed (a full disk). When ctx is done the agent is ended and
	// the outcome is a fault whose category is the cause of ctx if that is a *fault.Fault, else
	// fault.Interrupted.
	Run(ctx context.Context, seg Segment) (Outcome, error)
	// Close ends everything that the agent has kept for its next segments. It is called when no
	// segment runs and none will.
	Close() error
}

// Segment holds everything that an agent is given for a segment.
type Segment struct {
	RolloutID string
	// Marker marks the processes of this segment: they have it in their environment. Rollouts of
	// two stores may have the same id (of a run with the same --run-id), so the store's id is in
	// it. A process that serves several segments has a marker of its own.
	Marker string
	// Number counts a rollout's segments from 1, and Attempt the attempts of a segment from 1.
	Number  int
	Attempt int
	// Failures counts the attempts of this segment that have failed. An attempt that was broken off,
	// with evalrun, is none of them: the next one does the same work.
	Failures int
	Input    json.RawMessage
	// Resume maps interrupt ids to payloads, and Deliveries maps them to the deliveries' envelopes.
	// Both are nil in a rollout's first segment.
	Resume     map[string]json.RawMessage
	Deliveries map[string]Delivery
	// Workspace is the rollout's folder, which survives suspension. Dir is the folder for the files
	// of this attempt. Both are absolute and exist.
	Workspace string
	Dir       string
	// BaseDir is the folder against which an agent's relative cwd is resolved.
	BaseDir string
	// Env is added to the agent's environment: after its own entry's of a function agent, before
	// those of an ACP agent, which lead to its model.
	Env []string

	// Sandbox is where an agent that needs one is started; nil for function agents. The fields from
	// here to Solution are only for agents in a sandbox.
	Sandbox *Sandbox
	// Prompt is the prompt of a conversational agent. A segment that goes on with a session does
	// not send it again.
	Prompt string
	// Servers are the MCP servers of the task as the agent is told about them. Hosted has the names
	// of those that Sandbox.Setup starts.
	Servers []acp.MCPServer
	Hosted  []string
	// Gateway puts the servers behind the MCP gateway; nil sends them to the agent as they are.
	Gateway *Gateway
	// Mocks plays tools of the servers, if they are behind the gateway; nil plays none.
	Mocks *mock.Player
	// Functions are functions of the agent that are played in its process; nil if none are.
	Functions *mock.Functions
	// History lists the folders of earlier segments in order, as far as they belong to the
	// conversation that goes on. It is empty if a new conversation begins.
	History []string
	// Consume durably consumes the permission with which a trigger was answered, and reports
	// whether it was still there. It is gone if an attempt that was broken off has used it. Nil
	// keeps nothing.
	Consume func(ctx context.Context, triggerID string) (bool, error)
	// GoesOnFrom is the folder of the attempt with which this one goes on, by [Type.GoesOn]; empty if
	// the segment begins anew.
	GoesOnFrom string
	// Solution is the script that the oracle runs.
	Solution *Script

	// Budget is what the rollout may spend on models; nil means no limits. Earlier lists the
	// folders of the attempts before this one.
	Budget  *Budget
	Earlier []string

	// Timeout is the timeout of this segment; 0 means none. TimeoutOf names the limit from which it
	// was computed. OutputBytes is how many bytes the agent may print.
	Timeout     time.Duration
	TimeoutOf   string
	OutputBytes int64
	// Ended, if not nil, is called when the agent's process has ended. Its output may still be
	// read, but another agent may start.
	Ended func()
}

// Gateway says how the servers of a segment are put behind the MCP gateway.
type Gateway struct {
	// Ledger keeps the calls that may start something.
	Ledger suspend.Ledger
	// Check asks once whether a job is done; see [suspend.Hooks].
	Check func(ctx context.Context, w wait.Work) (wait.Status, error)
	// Jobs says who reports that a job is done. If its MCP server does, and the result is not there
	// when it is fetched, the rollout waits for the job again.
	Jobs wait.Jobs
	// Deadline is when the run ends, zero if never. Servers are told of it.
	Deadline time.Time
	// SoftWait is how long a call that has started something is held open; 0 means the gateway's
	// default.
	SoftWait time.Duration
	// Filters are the tools that the agent may see, by the name of the server.
	Filters map[string]gateway.Filter
}

// Script is a program of a task.
type Script struct {
	// Path is the path of the script as its process sees it.
	Path string
	Env  []string
}

// Delivery is the envelope of one payload in the resume document.
type Delivery struct {
	TriggerID string `json:"triggerId"`
	// Status is "successful", "faulted", "cancelled" or "expired".
	Status     string          `json:"status"`
	Payload    json.RawMessage `json:"payload"`
	Error      *wait.Error     `json:"error"`
	ReceivedAt time.Time       `json:"receivedAt"`
}

// Outcome says how a segment ended: exactly one of Output, Interrupts and Fault is set.
type Outcome struct {
	Output     json.RawMessage
	Interrupts []wait.Interrupt
	Fault      *fault.Fault
	// Limit may be set beside Output: a limit ended the agent, but its work up to then can be
	// verified.
	Limit *fault.Fault
	// Info holds everything else that is reported; nil if there is nothing.
	Info *record.Info
	// Files are the names of the files written to Segment.Dir. They are not yet synced.
	Files []string
	// Batched is how many of the suspensions before this one have waited for an answer in a batch.
	// Limits of the agent's own count these.
	Batched int
}

// InBatch reports whether the segment waits for an answer in a batch.
func (o Outcome) InBatch() bool {
	return slices.ContainsFunc(o.Interrupts, func(in wait.Interrupt) bool { return in.Request != nil })
}

// CauseFault returns the fault of a segment whose context is done.
func CauseFault(ctx context.Context) *fault.Fault {
	var f *fault.Fault
	if cause := context.Cause(ctx); errors.As(cause, &f) {
		clone := *f // the message is added to
		return &clone
	} else if cause != nil && !errors.Is(cause, context.Canceled) { // which says no more than that it was ended
		return fault.New(fault.Interrupted, "the agent was ended: "+cause.Error())
	}
	return fault.New(fault.Interrupted, "the agent was ended")
}

// LimitTo shortens the segment to the rest of a limit; 0 means no limit.
func (s *Segment) LimitTo(left, whole time.Duration, name string) {
	if left <= 0 || s.Timeout > 0 && s.Timeout <= left {
		return
	}
	s.Timeout, s.TimeoutOf = left, name
	if left != whole {
		s.TimeoutOf = fmt.Sprintf("what was left of %v, %s", whole, name)
	}
}

// TimeoutFault returns the fault of a segment that took longer than its Timeout.
func (s *Segment) TimeoutFault() *fault.Fault {
	return fault.Newf(fault.Timeout, "the segment took longer than %v and was ended (%s)",
		s.Timeout.Round(time.Millisecond), cmp.Or(s.TimeoutOf, "its limit"))
}

// DefaultOutputBytes is how many bytes an agent may print if its segment does not say so.
const DefaultOutputBytes = 16 << 20

// TraceparentVar is the variable that tells an agent's process to which parent its own spans
// belong, in the format of W3C Trace Context.
const TraceparentVar = "TRACEPARENT"

// Bounded is ctx with an end at the time of the segment or of its agent's entry, whichever is
// earlier; timeout is the entry's, 0 for none. It also fills in how much output there may be. The
// caller calls cancel.
func (s *Segment) Bounded(ctx context.Context, timeout time.Duration) (bounded context.Context, cancel context.CancelFunc) {
	s.LimitTo(timeout, timeout, TimeoutOfEntry)
	if s.OutputBytes <= 0 {
		s.OutputBytes = DefaultOutputBytes
	}
	if s.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.Timeout, s.TimeoutFault())
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// WorkKey identifies the work of this attempt for a service that does the same work once: the attempt
// after one that was broken off has the same key, and the attempt after one that has failed another.
func (s Segment) WorkKey() string {
	return fmt.Sprintf("%s-%d-%d", s.RolloutID, s.Number, s.Failures+1)
}

// Traceparent returns the value that makes this attempt of the segment the parent of the agent's
// spans.
func (s Segment) Traceparent() string {
	return wait.AgentTraceparent(s.RolloutID, s.Number, s.Attempt)
}
