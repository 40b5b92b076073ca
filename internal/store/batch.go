package store

import (
	"context"
	"encoding/json"
	"time"
)

// Batches are requests to models that are gathered and sent together, because that is cheaper. A
// request is added by WaitForScores, or by CommitSegment, with the trigger that waits for its answer. Somebody who claims
// a batch starts it, asks for it, and delivers the answers to the triggers; nobody asks for a
// single request.
type Batches interface {
	// ClaimBatches claims batches that are due, of one run or of all. A batch to which requests are
	// still being added is due at its time, or when no other rollout of its run can add one, or it is
	// full.
	ClaimBatches(ctx context.Context, runID string, limit int) ([]BatchClaim, error)
	// WaitingRequests calls f for every request of a batch whose trigger waits, in the order of their
	// custom ids.
	WaitingRequests(ctx context.Context, batchID string, f func(WaitingRequest) error) error
	// BatchStarted records that a batch was started, under the provider's id. It is due after next.
	BatchStarted(ctx context.Context, t BatchToken, externalID string, next time.Duration) error
	// BatchPending ends a claim on a batch that goes on and is due after next. message, if it is
	// not empty, says why the batch could not be started or asked for.
	BatchPending(ctx context.Context, t BatchToken, next time.Duration, message string) error
	// BatchEnded ends a batch whose answers have been delivered, and forgets its requests.
	BatchEnded(ctx context.Context, t BatchToken) error
	// StartedBatches are the providers' ids of all batches that the store knows. A judge and an agent
	// may have the same account.
	StartedBatches(ctx context.Context) ([]string, error)
}

// A batch has at most so many requests and bytes of bodies, which every provider takes.
const (
	MaxBatchRequests = 50_000
	MaxBatchBytes    = 180 << 20
)

// BatchRequest is a request that waits to be sent.
type BatchRequest struct {
	// Provider and Model are those of the whole batch. The provider of an agent has the agent's name.
	Provider, Model string
	// CustomID is how the provider tells the requests of a batch apart. Those that have the same
	// one are sent as one.
	CustomID string
	Body     json.RawMessage
	// Wait is how long at most the batch waits for more.
	Wait time.Duration
}

// WaitingRequest is a request whose answer is waited for.
type WaitingRequest struct {
	TriggerID string
	CustomID  string
	Body      json.RawMessage
	// Merged says that another request with this custom id had been added before.
	Merged bool
}

// Batch is a batch of requests.
type Batch struct {
	ID, RunID, Provider, Model string
	// Requests is how many it was made of; those that are sent as one count once.
	Requests int
	// ExternalID is the provider's id, set by BatchStarted.
	ExternalID string
	// FirstStart is when it was first claimed to be started.
	FirstStart time.Time
	// Attempts counts the claims to start it, Checks those to ask for it, and Failures those in a row
	// that have failed.
	Attempts, Checks, Failures int
	LastError                  string
}

// BatchToken says that its bearer had claimed the batch.
type BatchToken struct {
	BatchID string
	Fence   int64
}

// BatchClaim is a batch that this process may now act on. Action is ActionStart; ActionResolve if
// an earlier claim may have started it; ActionCheck; or ActionCancel, tried once, if nobody waits
// for it any more.
type BatchClaim struct {
	BatchToken
	Batch
	Action Action
}
