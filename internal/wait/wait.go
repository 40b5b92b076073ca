// Package wait describes what a rollout waits for: the interrupts that agents emit, the triggers
// made from them, and the sources, which start jobs and tell whether they are done.
//
// [ParseInterrupts] reads what an agent emitted, [ParseJobs] the eval set's key "jobs". [Work] is
// what the call of a tool has started. The package keeps no state and knows no source; wait/sources
// knows them all. Its callers store what a source says.
//
// # A new source
//
// A source is a package NAME below this one that implements [Source], as wait/http does, or
// gateway/source for one that follows what tools have started. One that asks over HTTP sends its
// requests with wait/httpcall. Its [Kind] says what entries of an eval set's jobs have, which
// triggers it serves, and how it is made; wait/sources registers it. It must pass waittest.Run;
// TestEverySourceIsKnown in wait/sources goes over [SourceNames] and fails for a name without such a
// test. docs/architecture.md lists every place that has to know it.
package wait

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// Interrupt is what an agent emitted to say that it waits. Several triggers under one interrupt are
// siblings: the first to fire wins.
type Interrupt struct {
	// ID is what the payload is keyed by on resume. Equal ids in one list have been told apart by
	// their index.
	ID    string
	Specs []Spec
	// Request goes to a batch of a model's provider, and its answer is waited for; nil for everything
	// else.
	Request *BatchRequest
}

// BatchRequest is a request of an agent that is a model.
type BatchRequest struct {
	// Source is that of the provider's batches.
	Source   string
	Model    string
	CustomID string
	Body     json.RawMessage
	// Wait is how long at most the batch waits for more.
	Wait time.Duration
}

// Batched is the payload of a trigger that waits for an answer in a batch.
type Batched struct {
	// Batch is always true.
	Batch bool   `json:"batch"`
	Model string `json:"model"`
	// InputTokens is about how many tokens the request has, and InputCost what they cost in US dollars,
	// nil if that is not known. How long the answer will be nobody knows before.
	InputTokens int64    `json:"inputTokens"`
	InputCost   *float64 `json:"inputCost"`
}

// Spec describes what is waited for, as the agent said it.
type Spec struct {
	Type Type   `json:"type"`
	Name string `json:"name"` // UiPath's trigger name in our spelling: JOB, JOB_RAW, TASK, ESCALATION, …
	// ItemKey is the key of a job, task or index that exists already; empty where one is yet to be
	// started.
	ItemKey string `json:"itemKey,omitempty"`
	// Process is the name of the process to start (InvokeProcess), by which a source is chosen from
	// the eval set's jobs.
	Process    string `json:"process,omitempty"`
	FolderPath string `json:"folderPath,omitempty"`
	FolderKey  string `json:"folderKey,omitempty"`
	// ResumeAt is when a timer fires.
	ResumeAt *time.Time `json:"resumeAt,omitempty"`
	// Payload is the interrupt's value as the agent gave it; it goes into the results document.
	Payload json.RawMessage `json:"payload"`
	// ExpiresAt is when the source forgets the result, nil if never.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	// CallID and Server are the call of a tool that has started it; empty for everything else. They
	// are not stored: Watch has the part of them that the source needs.
	CallID string `json:"-"`
	Server string `json:"-"`
	// Source names the source if the agent's own type knows it; empty where it is chosen by the rest.
	Source string `json:"source,omitempty"`
	// Watch is what the source needs beside the key to ask for it. It is never shown.
	Watch json.RawMessage `json:"watch,omitempty"`
	// Shown is the payload without secrets; nil if there are none in it.
	Shown json.RawMessage `json:"shown,omitempty"`
	// Played is what arrives without anybody, if somebody is played.
	Played *Played `json:"played,omitempty"`
	// ShownID is the interrupt's id without secrets; empty if there are none in it.
	ShownID string `json:"shownId,omitempty"`
}

// Visible returns the payload as it may be shown.
func (s Spec) Visible() json.RawMessage {
	if s.Shown != nil {
		return s.Shown
	}
	return s.Payload
}

// Digest changes with what is waited for, and not with the order of the members or with what else
// is kept of it.
func (s Spec) Digest() string {
	var payload any
	dec := json.NewDecoder(bytes.NewReader(s.Payload))
	dec.UseNumber()
	if err := dec.Decode(&payload); err != nil {
		payload = string(s.Payload)
	}
	s.Payload, s.Shown, s.ShownID, s.Watch, s.ExpiresAt, s.Played = nil, nil, "", nil, nil, nil
	sum := sha256.Sum256(jsonvalue.Marshal([]any{s, payload}))
	return hex.EncodeToString(sum[:16])
}

// Type is the kind of a trigger.
type Type string

// The trigger types. Those after TypeMeshJob are UiPath's.
const (
	TypeJob             Type = "JOB"
	TypeTask            Type = "TASK"
	TypeTimer           Type = "TIMER"
	TypeAPI             Type = "API"
	TypeInbox           Type = "INBOX"
	TypeQueueItem       Type = "QUEUE_ITEM"
	TypeMCPTask         Type = "MCP_TASK"
	TypeMeshJob         Type = "MESH_JOB"
	TypeDeepRag         Type = "DEEP_RAG"
	TypeBatchRag        Type = "BATCH_RAG"
	TypeIndexIngestion  Type = "INDEX_INGESTION"
	TypeIxpExtraction   Type = "IXP_EXTRACTION"
	TypeIxpVsEscalation Type = "IXP_VS_ESCALATION"
)

// OfPerson reports whether a person ends the wait: a person is asked, or somebody hands in what a
// program that asks for input is to go on with. Everything else is a job, or a time.
func (t Type) OfPerson() bool {
	return t == TypeTask || t == TypeAPI || t == TypeInbox || t == TypeIxpVsEscalation
}

// KeyPrefix begins the keys that evalrun makes, before the trigger's id: "job-" for a job, as in
// the founding proposal, and for others the type in place of "job".
func (t Type) KeyPrefix() string {
	return strings.ToLower(strings.ReplaceAll(string(t), "_", "-")) + "-"
}

// Error is a fault that is handed to an agent or shown to a person.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Start says what is known of a job after a crash between the intent to start it and the record
// that it was started.
type Start string

// The kinds of start.
const (
	// Idempotent: Start is called again with the same key and does not start a second job.
	Idempotent Start = "idempotent"
	// Searchable: Find tells whether a job with the key exists.
	Searchable Start = "searchable"
	// AtMostOnce: nothing can tell; the trigger faults with start-unknown.
	AtMostOnce Start = "atMostOnce"
)

// Source starts jobs of one kind and tells whether they are done. Implementations are safe for
// concurrent use, hold nothing open between calls, and start no goroutine that outlives a call.
type Source interface {
	// StartKind says how a start is resolved after a crash.
	StartKind() Start
	// Start starts the job of a trigger and returns its item key. Called only for triggers whose
	// Spec has no ItemKey. A Searchable source looks for the job first. An error that is a
	// *fault.Fault faults the trigger. Every other error is tried again after a backoff; a
	// *RetryError may ask for a longer one, and says whether the job can have been started. From an
	// AtMostOnce source every other error means that the job was certainly not started.
	Start(ctx context.Context, j Job) (itemKey string, err error)
	// Find looks for a job that was started with the trigger's key; found is false if there is
	// none. The error is ErrNoFind where the source cannot look.
	Find(ctx context.Context, j Job) (itemKey string, found bool, err error)
	// Check asks once whether the job is done.
	Check(ctx context.Context, j Job) (Status, error)
	// Cancel tries once to end the job.
	Cancel(ctx context.Context, j Job) error
}

// The names of the sources, as they are stored with a trigger.
const (
	SourceExternal = "external" // somebody else starts the job and delivers its result
	SourceTimer    = "timer"
	SourceExec     = "exec"
	SourceHTTP     = "http"
	SourceUiPath   = "uipath"
	SourceMesh     = "mesh"
	SourceMCP      = "mcp" // the MCP server whose tool has started it
	// SourceHTTPAgent is an agent of type http that has answered that its answer will be there later.
	SourceHTTPAgent = "http-agent"
	// SourceA2A is an agent of type a2a whose task goes on.
	SourceA2A = "a2a"
	// SourceLangGraph is a server of LangGraph whose run goes on.
	SourceLangGraph = "langgraph-server"
	// SourceFixed plays a person or a job: what arrives stands in the eval set.
	SourceFixed = "fixed"
	// A request of a judge or a model in a batch of a provider. Its batch is asked for, and never a
	// single request.
	SourceOpenAIBatch    = "openai-batch"
	SourceAnthropicBatch = "anthropic-batch"
)

// IsBatch reports whether a source is a batch of requests to a model.
func IsBatch(source string) bool {
	return source == SourceOpenAIBatch || source == SourceAnthropicBatch
}

// Job is a trigger as a source sees it.
type Job struct {
	// TriggerID is the idempotency key of the start.
	TriggerID string
	RolloutID string
	ItemKey   string
	Spec      Spec
	// Checks counts the checks so far, from which a source computes its backoff.
	Checks int
	// Since is when the trigger began to wait.
	Since time.Time
	// WebhookURL is where the job itself may answer, a secret; empty where no server can be reached.
	// It is the same whenever the job is started.
	WebhookURL string
	// Deadline is when whoever waits for the job gives up, zero if never.
	Deadline time.Time
	// Until is when the right to start the job ends, zero if it does not: a process that was
	// stopped in the meantime no longer starts it.
	Until time.Time
}

// OwnKey is the key that evalrun makes for something to wait for that has none of its own.
func (j Job) OwnKey() string { return j.Spec.Type.KeyPrefix() + j.TriggerID }

// HasKey tells whether the key of the job is known. Until a start is recorded the key that evalrun
// made stands in its place.
func (j Job) HasKey() bool { return j.ItemKey != "" && j.ItemKey != j.OwnKey() }

// Status is the answer of a check. Done is false while the job goes on; then After says when to ask
// again at the earliest (0: when something tells us).
type Status struct {
	Done    bool
	Payload json.RawMessage
	Fault   *fault.Fault
	After   time.Duration
	// Question is what the job asks before it goes on, nil if nothing. Only an [Asker] has any.
	Question *Question
}

// RetryError is an error after which a call is tried again, not before After.
type RetryError struct {
	After time.Duration
	Err   error
	// NotStarted says that the call was a start, and has certainly not begun a job.
	NotStarted bool
}

// ErrNoFind is the error of Find where a source has no means to look for a job.
var ErrNoFind = errors.New("the jobs of the eval set have no find request for this process")

// NotStarted marks the error of a start: the call has certainly not begun a job.
func NotStarted(err error) error {
	var retry *RetryError
	if errors.As(err, &retry) {
		return &RetryError{retry.After, retry.Err, true}
	}
	return err
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// errTooLate is the error of a start whose claim has run out.
var errTooLate = errors.New("the job was not started: the wait is over by now, or another process may start it")

// MayStart returns nil while the claim of a start lasts. A source calls it just before the request
// that starts the job.
func (j Job) MayStart(now time.Time) error {
	if j.Until.IsZero() || now.Before(j.Until) {
		return nil
	}
	return &RetryError{Err: errTooLate, NotStarted: true}
}

// ErrUnwatched says that nobody but a delivery can tell whether a job is done.
var ErrUnwatched = errors.New("nobody can tell whether the job is done")
