// Package suspend serves clients that cannot wait for long-running work, such as agents whose
// rollout can be suspended. [Hooks] records each call that may start something. If the work is not
// done soon, the client is told to end its turn, and the caller that opened the access learns what
// to wait for. The package knows the contracts for jobs, MCP tasks and questions to people. It
// knows nothing of rollouts and stores.
package suspend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/wait"
)

// Hooks decides what becomes of long-running work that calls of tools start, for one client that
// cannot wait for it itself.
//
// A call that may start something is recorded before it is made, and the work that it has started
// before anybody is told. If the work ends within SoftWait the client gets its result. Otherwise
// the work is [Suspended] and the client is told to end its turn; whoever watches the work hands
// the result in later. Work that would end with us is held instead: the call stays open for up to
// Hold, and the same call, made again, joins it.
type Hooks struct {
	Ledger Ledger
	// Check asks once whether a job is done. It is nil, or returns wait.ErrUnwatched, for jobs of
	// which only a delivery can tell.
	Check func(ctx context.Context, w wait.Work) (wait.Status, error)
	// Jobs says for a tool where its results have the handle of a job of MCP Mesh, and whether the
	// registry can be asked for the job.
	Jobs wait.Jobs
	// SoftWait and Hold are as above; 0 means 40 s and 290 s.
	SoftWait, Hold time.Duration
	// Changed is called when the state of work changes, and Called after each call of a tool. Both
	// may be nil.
	Changed func(w wait.Work, state State)
	Called  func(r Record)
	// Permit is called before each call of a tool. It returns the reason why the call is not made, or
	// nothing if it is. The client gets the reason as the tool's error. Permit may be nil.
	Permit func(ctx context.Context, server, tool string, arguments json.RawMessage) (refusal string)
	// Mocks plays tools; nil plays none. A call that it plays is not made.
	Mocks *mock.Player
	// Person says that a person answers the questions of tasks, and of calls of modern servers; they
	// are left like work. Otherwise the client is asked if it can be, or the question is declined.
	Person bool
	// Once says that each call is recorded whose tool is neither read-only nor idempotent, also if it
	// cannot start anything. Such a call is not made again after a crash: see [ErrUnknown].
	Once bool
	// Progress is how often a client that waits is told that its call goes on; 0 means 5 s.
	Progress time.Duration
}

// State says what becomes of the work of a call while its client waits.
type State string

// The states that [Hooks].Changed gets.
const (
	// Held is work that would end with us, for which its call is held open. Released is its end.
	Held     State = "held"
	Released State = "released"
	// Suspended is work that is left to others. The client is told after Changed has returned.
	Suspended State = "suspended"
	// Arrived is work that was left to others, and whose result a call of the client has brought.
	Arrived State = "arrived"
	// Unknown is a call that a crash broke off, if nobody can tell whether it has started something.
	Unknown State = "unknown"
)

const (
	defaultSoftWait = 40 * time.Second
	defaultHold     = 290 * time.Second
	defaultProgress = 5 * time.Second
)

// Ledger keeps the calls that may start something. Each method is durable when it returns. Calls
// are distinguished by key and ordinal: how many equal calls came before whose final result has
// reached the client.
type Ledger interface {
	// Begin records that a call is about to be made. If the last call with the key has not ended, it
	// returns that one instead.
	Begin(ctx context.Context, key CallKey) (Entry, error)
	// Started records what a call has started, or what it waits for, in place of the earlier record.
	// Work reads it. The error says what could not be recorded.
	Started(ctx context.Context, w *wait.Work) error
	Work(ctx context.Context, id string) (*wait.Work, error)
	// Ended records that the client has the final result of a call.
	Ended(ctx context.Context, id string) error
}

// CallKey says which calls are equal.
type CallKey struct {
	Server string
	Tool   string
	// Arguments is the SHA-256 of the arguments in canonical spelling, in hex.
	Arguments string
}

func keyOf(server, tool string, arguments json.RawMessage) CallKey {
	sum := sha256.Sum256([]byte(jsonobj.Canonical(arguments)))
	return CallKey{Server: server, Tool: tool, Arguments: hex.EncodeToString(sum[:])}
}

// Entry is a call in the ledger.
type Entry struct {
	// ID is unique, and the same for the same call in every process. It is the idempotency key of what
	// the call starts.
	ID string
	// New says that the call was not in the ledger before.
	New bool
	// Work is the work that the call has started; nil as long as that is not known.
	Work *wait.Work
}

// Record is a call of a tool as the gateway saw it.
type Record struct {
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Meta is the _meta of the client, in which some clients name their own id of the call.
	Meta json.RawMessage `json:"meta,omitempty"`
	// Result is the result that the client got. Error is the error.
	Result     json.RawMessage `json:"result,omitempty"`
	Error      json.RawMessage `json:"error,omitempty"`
	StartedAt  time.Time       `json:"startedAt"`
	DurationMs int64           `json:"durationMs"`
	// Started says that the result only tells that work has been started or goes on. Held says that
	// the call was held open for it. CallID is then the call's id in the ledger.
	Started bool   `json:"started,omitempty"`
	Held    bool   `json:"held,omitempty"`
	CallID  string `json:"callId,omitempty"`
	// Refused says that the call was not made.
	Refused bool `json:"refused,omitempty"`
	// Mock is the place of the mock that was played in place of the call; empty if none was.
	Mock string `json:"mock,omitempty"`
}
