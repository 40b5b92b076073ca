package model

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/retry"
)

// Batch is a batch of requests to one model.
type Batch struct {
	// ID is our id, and External the provider's.
	ID, External string
	// Since is when the first try to start it was made. Size is how many requests it has.
	Since time.Time
	Size  int
	// Others has the provider's ids of batches that are known not to be this one.
	Others []string
}

// BatchRequest is a request of a batch.
type BatchRequest struct {
	// CustomID is unique in the batch: the answer has it.
	CustomID string
	Body     json.RawMessage
}

// BatchError is the error of a failed call about a batch.
type BatchError struct {
	// Final says that the call would fail again.
	Final   bool
	After   time.Duration
	Message string
}

// Error implements error.
func (e *BatchError) Error() string { return e.Message }

// BatchStatus is the progress of a batch.
type BatchStatus struct {
	// Ended says that no more answers will come. Why says in one word how the batch has ended.
	Ended bool
	Why   string
	// files has the places of the answers.
	files []string
}

// batchAPI is the interface of a provider to batches.
type batchAPI interface {
	// start starts a batch and returns its id.
	start(ctx context.Context, c *Batches, b Batch, requests []BatchRequest) (string, error)
	// find finds a batch that may have been started; its id is empty if there is none.
	find(ctx context.Context, c *Batches, b Batch) (string, error)
	check(ctx context.Context, c *Batches, id string) (BatchStatus, error)
	// answer reads a line of the answers.
	answer(line []byte) (customID string, out BatchAnswer, err error)
	cancelPath(id string) string
}

var batchAPIs = map[API]batchAPI{APIChat: openaiBatches{"/v1/chat/completions"},
	APIResponses: openaiBatches{"/v1/responses"}, APIMessages: anthropicBatches{}}

// HasBatches reports whether batches of a wire format are known.
func (a API) HasBatches() bool { return batchAPIs[a] != nil }

// Batches makes calls about batches to a provider. The errors of its methods are *[BatchError].
type Batches struct {
	e         *Endpoint
	api       batchAPI
	base, key string
	redact    func(json.RawMessage) json.RawMessage
}

// Batches returns the batches of a provider whose API has some. base is its URL without a slash at its
// end, and redact takes secrets out of answers.
func (e *Endpoint) Batches(base, key string, redact func(json.RawMessage) json.RawMessage) *Batches {
	return &Batches{e, batchAPIs[e.Config.API], base, key, redact}
}

// Start starts a batch and returns the provider's id of it. With find it first looks for a batch that
// an earlier call has started.
func (c *Batches) Start(ctx context.Context, b Batch, requests []BatchRequest, find bool) (id string, err error) {
	if find {
		if id, err = c.Find(ctx, b); err != nil || id != "" {
			return id, err
		}
	}
	return c.api.start(ctx, c, b, requests)
}

// Find finds a batch that may have been started; the id is empty if none was.
func (c *Batches) Find(ctx context.Context, b Batch) (id string, err error) {
	return c.api.find(ctx, c, b)
}

// Check asks once for the progress of a batch.
func (c *Batches) Check(ctx context.Context, b Batch) (BatchStatus, error) {
	return c.api.check(ctx, c, b.External)
}

// BatchAnswer is the result of a request in a batch.
type BatchAnswer struct {
	// Batch is the provider's id of the batch.
	Batch     string `json:"batch"`
	RequestID string `json:"requestId,omitempty"`
	// Body is the answer in the form in which the provider answers directly. If there is none,
	// Error says why.
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
	// Merged says that the answer has been paid for by an equal request.
	Merged bool `json:"merged,omitempty"`
}

// MergedAnswer returns the answer, as JSON, of a request that was sent as one with another, given that
// of the other.
func MergedAnswer(payload json.RawMessage) (json.RawMessage, error) {
	var answer BatchAnswer
	if err := json.Unmarshal(payload, &answer); err != nil {
		return nil, err
	}
	answer.Merged = true
	return json.Marshal(answer)
}

// Unanswered returns the answer, as JSON, of a request that has none, with the reason.
func Unanswered(batch, why string) json.RawMessage {
	data, _ := json.Marshal(BatchAnswer{Batch: batch, Error: why}) // marshalling it cannot fail
	return data
}

// Answers calls f for each request of an ended batch that has an answer, or an error in place of one.
// f gets the custom id of the request and its [BatchAnswer] as JSON.
func (c *Batches) Answers(ctx context.Context, b Batch, s BatchStatus,
	f func(customID string, payload json.RawMessage) error) error {
	for _, path := range s.files {
		body, err := c.open(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return err
		}
		err = eachLine(body, func(line []byte) error {
			customID, answer, err := c.api.answer(line)
			if err != nil {
				return nil // the requests without an answer are handled at the end
			}
			answer.Batch = b.External
			payload, err := json.Marshal(answer)
			if err != nil {
				return err
			}
			return f(customID, c.redact(payload))
		})
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Cancel tries to end a batch.
func (c *Batches) Cancel(ctx context.Context, b Batch) error {
	return c.json(ctx, http.MethodPost, c.api.cancelPath(b.External), nil, nil)
}

// eachLine calls f with every line that is not empty. It stops at a line that is longer than any
// answer.
func eachLine(r io.Reader, f func(line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), MaxAnswer)
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			if err := f(line); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return &BatchError{Message: "the answers of the batch cannot be read: " + err.Error()}
	}
	return nil
}

// requestTimeout is how long one request about a batch may take; files may be large.
const requestTimeout = 5 * time.Minute

// open makes one request and returns the body of the answer, which must be closed.
func (c *Batches) open(ctx context.Context, method, path, contentType string, body io.Reader) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		cancel()
		return nil, &BatchError{Final: true, Message: "the base URL of the provider " + c.e.Name + " is no URL"}
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	c.e.Config.API.SetHeaders(request.Header, c.key)
	response, err := c.e.o.Client.Do(request)
	if err != nil {
		cancel()
		return nil, &BatchError{Message: "the provider " + c.e.Name + " cannot be reached: " + err.Error()}
	}
	if response.StatusCode < 300 {
		return batchBody{response.Body, cancel}, nil
	}
	defer cancel()
	defer func() { _ = response.Body.Close() }()                    // only read
	said, _ := io.ReadAll(io.LimitReader(response.Body, MaxAnswer)) // the body only explains the status
	failed := c.e.Failed("", response.StatusCode, said, nil)        // "the provider … refuses the request"
	out := &BatchError{Message: failed.Message}
	out.Final = !retry.Temporary(response.StatusCode)
	out.After, _ = retry.After(response.Header, c.e.o.Now())
	return nil, out
}

// batchBody is a body whose request ends when it is closed.
type batchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (e batchBody) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

// json makes one request with a JSON body, if in is not nil, and decodes the answer into out, if
// that is not nil.
func (c *Batches) json(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return &BatchError{Final: true, Message: err.Error()}
		}
		body = bytes.NewReader(data)
	}
	response, err := c.open(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(response, MaxAnswer))
	if err == nil && out != nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return &BatchError{Message: fmt.Sprintf("the provider %s answers with something else than it should: %v",
			c.e.Name, err)}
	}
	return nil
}

// clockSkew is how far the provider's clock may be behind ours.
const clockSkew = 2 * time.Minute

// Batching says whether requests go to the provider's batches, which cost less and take longer.
type Batching struct {
	Enabled bool `json:"enabled,omitempty"`
	// MaxWait is how long a batch waits for more requests while the run goes on.
	MaxWait time.Duration `json:"maxWaitNs,omitempty"`
	// Interval is the first pause between two checks of a batch, and MaxInterval the longest.
	Interval    time.Duration `json:"intervalNs,omitempty"`
	MaxInterval time.Duration `json:"maxIntervalNs,omitempty"`
	// PriceFactor is the price of a token in a batch, as a fraction of its usual price.
	PriceFactor float64 `json:"priceFactor,omitempty"`
}

// DefaultBatching has the values of sets that name no others. The providers charge half the price.
var DefaultBatching = Batching{MaxWait: 2 * time.Minute, Interval: 30 * time.Second, MaxInterval: 5 * time.Minute,
	PriceFactor: 0.5}

// ParseBatching reads the settings of batches, but for Enabled. otherwise has what is not given.
func ParseBatching(r *input.Reader, f *input.Fields, otherwise Batching) Batching {
	b := otherwise
	b.MaxWait = f.Duration("maxWait", b.MaxWait)
	b.Interval = f.Duration("interval", b.Interval)
	b.MaxInterval = f.Duration("maxInterval", max(b.Interval, b.MaxInterval))
	if at := f.Get("interval"); at != nil && b.Interval <= 0 {
		r.Errorf(at, "expected a duration above 0")
	}
	if at := f.Get("maxInterval"); at != nil && b.MaxInterval < b.Interval {
		r.Errorf(at, "expected at least the interval, %s", b.Interval)
	}
	b.PriceFactor = f.Float("priceFactor", b.PriceFactor, 0, 1)
	return b
}

// PauseBefore returns how long to wait before the next check. The pause doubles each time, up to the
// longest one.
func (b Batching) PauseBefore(checks int) time.Duration {
	pause := b.Interval
	for i := 0; i < checks && pause < b.MaxInterval; i++ {
		pause *= 2
	}
	return max(min(pause, b.MaxInterval), time.Millisecond)
}
