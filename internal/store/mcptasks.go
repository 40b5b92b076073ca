package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// MCPTasks keeps the tasks that an MCP gateway has given its clients, and the sessions of these. A
// task belongs to whoever bears an access token, and within it to the legacy session in which it
// was made, or to none.
type MCPTasks interface {
	// AddMCPTask records a task before its client is told of it, and returns it with its times.
	// Tasks whose time is over make room first; ErrTooManyTasks says that there are too many all
	// the same.
	AddMCPTask(ctx context.Context, t MCPTask, limits MCPTaskLimits) (MCPTask, error)
	// ChangeMCPTask writes what can change in a task. If the task has ended before, or is not there
	// any more, nothing is written and changed is false. An end is durable when this returns.
	ChangeMCPTask(ctx context.Context, t MCPTask) (after MCPTask, changed bool, err error)
	// RemoveMCPTask forgets a task.
	RemoveMCPTask(ctx context.Context, id string) error
	// MCPTask returns a task of an access and session; ErrNotFound if it is not there or its time
	// is over.
	MCPTask(ctx context.Context, access, session, id string) (MCPTask, error)
	// MCPTasks returns up to limit tasks of an access and session after one of them, by Seq, the
	// oldest first. Fields that may be large are left out: Work, InputRequests, Result and Error.
	// So is Told, which the database keeps behind them.
	MCPTasks(ctx context.Context, access, session string, after int64, limit int) ([]MCPTask, error)
	// OpenMCPTasks returns the tasks of an access that have not ended.
	OpenMCPTasks(ctx context.Context, access string) ([]MCPTask, error)
	// TellMCPTasks returns the tasks of a session whose end has not been told, as MCPTasks does,
	// and records that it was told.
	TellMCPTasks(ctx context.Context, access, session string) ([]MCPTask, error)

	// PutMCPSession records a session.
	PutMCPSession(ctx context.Context, s MCPSession) error
	// MCPSession returns a session, or ErrNotFound.
	MCPSession(ctx context.Context, access, endpoint, id string) (MCPSession, error)
	// EndMCPSession forgets a session.
	EndMCPSession(ctx context.Context, access, id string) error
	// ExpireMCP forgets the tasks whose time is over, and the sessions of an access that were not
	// used for the time idle. Those that are in use count as used now. It returns the ids of the
	// sessions that it has forgotten.
	ExpireMCP(ctx context.Context, access string, inUse []string, idle time.Duration) (sessions []string, err error)
}

// ErrTooManyTasks means that an access or a session has as many tasks as it may.
var ErrTooManyTasks = errors.New("there are too many MCP tasks")

// MCPTaskLimits bound the tasks of an access, and of each of its sessions; 0 is no limit. A task of
// no session counts for the access only. A task of a session that has ended does not count: nobody
// can ask for it.
type MCPTaskLimits struct{ Total, PerSession int }

// MCPTask is a task that an MCP gateway has given a client.
type MCPTask struct {
	// AddMCPTask sets whose task it is and what was called. ID is the gateway's own, Access the
	// digest of the access token, Session the legacy session or empty.
	ID, Access, Session string
	Server, Tool        string
	// Seq grows with each task, and CreatedAt is the store's time. AddMCPTask sets both.
	Seq       int64
	CreatedAt time.Time
	// TTL is set by AddMCPTask: the task is forgotten that long after CreatedAt.
	TTL time.Duration

	// AddMCPTask sets the fields below, and ChangeMCPTask replaces them.

	// UpdatedAt is the store's time of the last change.
	UpdatedAt time.Time
	// Status is one of the protocol's: working, input_required, completed, failed, cancelled.
	// Message is what is said of it.
	Status, Message string
	// Poll is how often clients should ask.
	Poll time.Duration
	// Work is what a later gateway needs to go on with the task. It is nil if the gateway itself
	// runs the task, which then ends with it.
	Work json.RawMessage
	// InputRequests is what the task wants to know, as an object; nil for nothing.
	InputRequests json.RawMessage
	// Result and Error are the task's payload, raw.
	Result, Error json.RawMessage
	// Told says that the client was told of the end without having asked. TellMCPTasks sets it,
	// too.
	Told bool
}

// Ended reports whether the status is one that a task ends with.
func (t *MCPTask) Ended() bool {
	return t.Status == "completed" || t.Status == "failed" || t.Status == "cancelled"
}

// ExpiresAt is when the task is forgotten.
func (t *MCPTask) ExpiresAt() time.Time { return t.CreatedAt.Add(t.TTL) }

// MCPSession is a legacy session of a client of an MCP gateway. PutMCPSession writes it; only its
// time of use, which is not shown, changes after that.
type MCPSession struct {
	// ID is that of the protocol. Access is the digest of the access token, Endpoint the name of
	// the endpoint.
	ID, Access, Endpoint string
	// Version is the protocol's that was agreed on.
	Version string
	// Capabilities and Info are the client's own words; either may be nil.
	Capabilities, Info json.RawMessage
}
