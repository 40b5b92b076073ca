// Package acp is the client's side of the Agent Client Protocol, version 1: JSON-RPC 2.0, one
// message a line, over an agent's stdin and stdout.
//
// [NewConn] takes the two pipes and starts no process. The calls are methods of [Conn]; a [Handler]
// receives the agent's messages, in the order of the wire. Only the fields that evalrun needs have
// types; Raw always has the whole message. The package knows nothing of tasks, runs, stores and
// sandboxes. Lines may contain tokens of MCP servers: a caller that keeps them ([Options.Record])
// has to redact them.
package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ProtocolVersion is the only version that this package speaks. The five agents that were measured
// answer 1 to whatever they are offered, and version 2 is a draft.
const ProtocolVersion = 1

// DefaultMaxLine is the limit if Options.MaxLine is 0. The longest line seen of a real agent had
// 570 KB.
const DefaultMaxLine = 64 << 20

var (
	// ErrClosed means that the connection has ended: the agent closed its stdout or its stdin, or
	// Close was called.
	ErrClosed = errors.New("the connection to the agent is closed")
	// ErrLineTooLong means that the agent sent a line longer than Options.MaxLine, which ended the
	// connection.
	ErrLineTooLong = errors.New("the agent sent a line that is too long")
)

// AgentError is the error with which an agent answered a call. Any integer may be a code: some
// agents send HTTP statuses.
type AgentError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error does not show Data, which may hold anything.
func (e *AgentError) Error() string {
	return fmt.Sprintf("the agent answered error %d: %s", e.Code, e.Message)
}

// Codes of JSON-RPC and ACP.
const (
	CodeInvalidParams   = -32602
	CodeMethodNotFound  = -32601
	CodeInternal        = -32603
	CodeCancelled       = -32800
	CodeAuthRequired    = -32000
	CodeResourceMissing = -32002
)

// ProtocolError means that the agent's answer to a call breaks the protocol.
type ProtocolError struct {
	Method string
	Reason string
}

func (e *ProtocolError) Error() string { return e.Method + ": " + e.Reason }

// Handler receives the messages that the agent sends of its own accord.
type Handler interface {
	// Update is called for every session/update, unknown kinds included, in order and on the
	// goroutine that reads: a slow Update slows the agent down. A call of the connection that waits
	// for an answer must not be made from here.
	Update(Update)
	// RequestPermission is called on a goroutine of its own. Its ctx ends when the agent or
	// [Conn.Cancel] withdraws the request, which is then answered already. An error denies.
	RequestPermission(ctx context.Context, req PermissionRequest) (PermissionOutcome, error)
}

// Direction says who sent a line.
type Direction int

// The two directions.
const (
	FromAgent Direction = iota
	ToAgent
)

// Options are the settings of a connection. A service that is nil is neither advertised to the
// agent nor served.
type Options struct {
	// MaxLine is the length at which a line of the agent ends the connection; 0 means
	// DefaultMaxLine.
	MaxLine int
	// Record is called with every line, without its line feed, noise included, never concurrently
	// with itself: a request before its answer, an incoming line before it is handled. The line may
	// be kept and must not be changed. Record must not call the connection.
	Record func(dir Direction, line []byte)
	// Noise is called with every line of the agent that is no message.
	Noise func(line []byte)

	// Traceparent is sent as _meta.traceparent with the requests that open a session, unless these
	// have a _meta of their own, and with prompts: the protocol reserves the name for W3C Trace
	// Context. Empty sends none.
	Traceparent string

	// Requested, if not nil, is called with every request of the agent before it is served: a sign
	// of life.
	Requested func()
	// Serves reports whether a session belongs to this connection; if nil, all do. Requests of other
	// sessions are refused.
	Serves func(sessionID string) bool

	// Files serves fs/*.
	Files *Files
	// Terminals serves terminal/*.
	Terminals *Terminals
	// Elicit serves elicitation/create. An error is answered with [ElicitCancel].
	Elicit func(ctx context.Context, req ElicitationRequest) (ElicitationResult, error)
}
