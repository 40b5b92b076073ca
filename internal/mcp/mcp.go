// Package mcp is the Model Context Protocol on the wire, in every version from 2024-11-05 to
// 2026-07-28 and on both sides. It keeps everything that goes over it unchanged: params, results
// and errors are raw JSON.
//
// [Connect] makes a [Client] of a server; [ServeStdio] and [NewHTTPHandler] serve clients with a
// [Handler]. The package knows the framing, the handshakes, sessions and headers of each era, and
// the few members of a message that its hop needs. It knows nothing of what tools do.
//
// The public Go SDK decodes what it carries: it loses task handles, members that it does not know,
// precision and the data of errors (facts of its version 1.8.0: docs/gateway.md). It is used as a
// foreign peer in the tests.
package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// Era is which of the two protocols a connection speaks.
type Era string

// The eras.
const (
	// Legacy is 2024-11-05 to 2025-11-25: initialize, sessions, requests from the server.
	Legacy Era = "legacy"
	// Modern is 2026-07-28: no handshake, every request stands by itself.
	Modern Era = "modern"
)

// The protocol versions.
const (
	Version2024_11_05 = "2024-11-05"
	Version2025_03_26 = "2025-03-26"
	Version2025_06_18 = "2025-06-18"
	Version2025_11_25 = "2025-11-25"
	Version2026_07_28 = "2026-07-28"
)

// LegacyVersions and Versions are the versions that are spoken, the newest first.
var (
	LegacyVersions = []string{Version2025_11_25, Version2025_06_18, Version2025_03_26, Version2024_11_05}
	Versions       = append([]string{Version2026_07_28}, LegacyVersions...)
)

// EraOf is the era of a version that is spoken.
func EraOf(version string) (Era, bool) {
	switch {
	case version == Version2026_07_28:
		return Modern, true
	case slices.Contains(LegacyVersions, version):
		return Legacy, true
	}
	return "", false
}

// The keys of _meta that describe one hop. They must not be passed on, because on the next hop they
// would speak for somebody else.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken      = "progressToken"
)

// The other keys that evalrun knows.
const (
	// MetaRelatedTask names the task of a legacy result.
	MetaRelatedTask = "io.modelcontextprotocol/related-task"
	// MetaIdempotency is the key under which a server says that it knows MetaIdempotencyKey: a call
	// with the same key as one before starts nothing. Both are evalrun's own (docs/gateway.md).
	MetaIdempotency    = "evalrun.dev/idempotency"
	MetaIdempotencyKey = "evalrun.dev/idempotencyKey"
	// ExtensionTasks is the extension of Modern that replaces the tasks of 2025-11-25.
	ExtensionTasks = "io.modelcontextprotocol/tasks"
)

// Methods and notifications that the hop itself must know.
const (
	MethodInitialize  = "initialize"
	MethodDiscover    = "server/discover"
	MethodPing        = "ping"
	MethodListen      = "subscriptions/listen"
	MethodSetLevel    = "logging/setLevel"
	MethodSubscribe   = "resources/subscribe"
	MethodUnsubscribe = "resources/unsubscribe"
	MethodToolsList   = "tools/list"
	MethodToolsCall   = "tools/call"
	MethodTasksGet    = "tasks/get"
	MethodTasksList   = "tasks/list"
	MethodTasksResult = "tasks/result"
	MethodTasksCancel = "tasks/cancel"
	MethodTasksUpdate = "tasks/update"

	NoteInitialized  = "notifications/initialized"
	NoteCancelled    = "notifications/cancelled"
	NoteProgress     = "notifications/progress"
	NoteMessage      = "notifications/message"
	NoteAcknowledged = "notifications/subscriptions/acknowledged"
	NoteTaskStatus   = "notifications/tasks/status" // of Legacy
	NoteTask         = "notifications/tasks"        // of Modern
)

// The error codes.
const (
	CodeParse              = -32700
	CodeInvalidRequest     = -32600
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// HeaderCallingJob is the header in which a rollout that calls a server names itself by its own id.
// MCP Mesh uses it in the same way.
const HeaderCallingJob = "X-Mesh-Calling-Job-Id"

// message is a message on any transport.
type message = jsonrpc.Message

// Error is a JSON-RPC error. It is an error of the other side, not of the connection.
type Error struct {
	Code    int64
	Message string
	// Raw is the whole error object as it came. It is nil for an error that was made here without
	// data.
	Raw json.RawMessage
}

// Errorf makes an error.
func Errorf(code int64, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return fmt.Sprintf("MCP error %d: %s", e.Code, e.Message) }

// WithData returns the error with data.
func (e *Error) WithData(data json.RawMessage) *Error {
	out := *e
	out.Raw = jsonobj.Object{
		{Key: "code", Value: json.RawMessage(strconv.FormatInt(e.Code, 10))},
		{Key: "message", Value: jsonobj.Quote(e.Message)}, {Key: "data", Value: data},
	}.JSON()
	return &out
}

// Data is the data of the error; nil if there is none.
func (e *Error) Data() json.RawMessage {
	o, _ := jsonobj.ParseObject(e.Raw)
	return o.Get("data")
}

// JSON is the error object.
func (e *Error) JSON() json.RawMessage {
	if e.Raw != nil {
		return e.Raw
	}
	return jsonobj.Object{{Key: "code", Value: json.RawMessage(strconv.FormatInt(e.Code, 10))},
		{Key: "message", Value: jsonobj.Quote(e.Message)}}.JSON()
}

// ParseError reads an error object. It keeps a malformed one all the same.
func ParseError(raw json.RawMessage) *Error {
	e := &Error{Code: CodeInternal, Message: "the error is no JSON-RPC error object", Raw: raw}
	o, err := jsonobj.ParseObject(raw)
	if err != nil {
		return e
	}
	if code, err := strconv.ParseInt(string(o.Get("code")), 10, 64); err == nil {
		e.Code = code
	}
	if text := o.Get("message"); text != nil {
		e.Message = o.Text("message")
	}
	return e
}

// TextResult is a result of a tool that is one text.
func TextResult(text string, isError bool) json.RawMessage {
	content := jsonobj.Object{
		{Key: "type", Value: json.RawMessage(`"text"`)}, {Key: "text", Value: jsonobj.Quote(text)},
	}.JSON()
	o := jsonobj.Object{{Key: "content", Value: append(append(json.RawMessage{'['}, content...), ']')}}
	if isError {
		o = o.Set("isError", json.RawMessage("true"))
	}
	return o.JSON()
}

// EmptyObject is {}.
var EmptyObject = json.RawMessage("{}")

// Acknowledged is the modern answer to a request that has no result.
var Acknowledged = json.RawMessage(`{"resultType":"complete"}`)

// MetaOf returns the members of the _meta of params or a result.
func MetaOf(doc json.RawMessage) jsonobj.Object {
	meta, _ := jsonobj.ParseObject(jsonobj.Get(doc, "_meta"))
	return meta
}

// WithoutMeta removes keys from the _meta of a document, and an empty _meta with the last of them.
// A document without them stays as it is.
func WithoutMeta(doc json.RawMessage, keys ...string) json.RawMessage {
	meta := MetaOf(doc)
	if !HasAny(meta, keys) {
		return doc
	}
	o, err := jsonobj.ParseObject(doc)
	if err != nil {
		return doc
	}
	if meta = meta.Delete(keys...); len(meta) == 0 {
		return o.Delete("_meta").JSON()
	}
	return o.Set("_meta", meta.JSON()).JSON()
}

// WithMeta sets a key in the _meta of a document.
func WithMeta(doc json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	o, err := jsonobj.ParseObject(doc)
	if err != nil {
		return doc
	}
	return o.Set("_meta", o.Object("_meta").Set(key, value).JSON()).JSON()
}

// HasAny reports whether an object has one of the keys.
func HasAny(o jsonobj.Object, keys []string) bool { return slices.ContainsFunc(keys, o.Has) }
