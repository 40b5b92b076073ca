package judge

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

	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/retry"
)

// Batch is a batch of requests to one model.
type Batch struct {
	// ID is our id, and External the provider's.
	ID, External    string
	Provider, Model string
	// Since is when the first try to start it was made. Size is how many requests it has.
	Since time.Time
	Size  int
	// Others has the provider's ids of batches that are known not to be this one.
	Others []string
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
	start(ctx context.Context, c *batchCall, b Batch, requests []Request) (string, error)
	// find finds a batch that may have been started; its id is empty if there is none.
	find(ctx context.Context, c *batchCall, b Batch) (string, error)
	check(ctx context.Context, c *batchCall, id string) (BatchStatus, error)
	// answer reads a line of the answers.
	answer(line []byte) (key string, out batchAnswer, err error)
	cancelPath(id string) string
}

var batchAPIs = map[API]batchAPI{APIChat: openaiBatches{"/v1/chat/completions"},
	APIResponses: openaiBatches{"/v1/responses"}, APIMessages: anthropicBatches{}}

// StartBatch starts a batch and returns the provider's id of it. With find it first looks for a
// batch that an earlier call has started. The error is a *[BatchError].
func (j *Judges) StartBatch(ctx context.Context, b Batch, requests []Request, find bool) (id string, err error) {
	c, err := j.batchCall(b.Provider)
	if err != nil {
		return "", err
	}
	if find {
		if id, err = c.api.find(ctx, c, b); err != nil || id != "" {
			return id, err
		}
	}
	return c.api.start(ctx, c, b, requests)
}

// FindBatch finds a batch that may have been started; the id is empty if none was.
func (j *Judges) FindBatch(ctx context.Context, b Batch) (id string, err error) {
	c, err := j.batchCall(b.Provider)
	if err != nil {
		return "", err
	}
	return c.api.find(ctx, c, b)
}

// CheckBatch asks once for the progress of a batch.
func (j *Judges) CheckBatch(ctx context.Context, b Batch) (BatchStatus, error) {
	c, err := j.batchCall(b.Provider)
	if err != nil {
		return BatchStatus{}, err
	}
	return c.api.check(ctx, c, b.External)
}

// BatchAnswers calls f for each request of an ended batch that has an answer, or an error in place
// of one. f gets the custom id of the request and the payload for its trigger.
func (j *Judges) BatchAnswers(ctx context.Context, b Batch, s BatchStatus,
	f func(customID string, payload json.RawMessage) error) error {
	c, err := j.batchCall(b.Provider)
	if err != nil {
		return err
	}
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
			return f(customID, j.o.Redact.JSON(payload))
		})
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	return nil
}

// CancelBatch tries to end a batch.
func (j *Judges) CancelBatch(ctx context.Context, b Batch) error {
	c, err := j.batchCall(b.Provider)
	if err != nil {
		return err
	}
	return c.json(ctx, http.MethodPost, c.api.cancelPath(b.External), nil, nil)
}

// eachLine calls f with every line that is not empty. It stops at a line that is longer than any
// answer.
func eachLine(r io.Reader, f func(line []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), model.MaxAnswer)
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

// batchCall makes calls about batches to a provider, with its key.
type batchCall struct {
	asked
	api batchAPI
}

func (j *Judges) batchCall(provider string) (*batchCall, error) {
	p := j.providers[provider]
	if p == nil {
		return nil, &BatchError{Final: true, Message: "there is no provider " + provider}
	}
	c := &batchCall{asked{j: j, p: p}, batchAPIs[p.Config.API]}
	if err := c.expand(); err != nil {
		return nil, &BatchError{Message: err.Error()} // another process may have the key
	}
	return c, nil
}

// requestTimeout is how long one request about a batch may take; files may be large.
const requestTimeout = 5 * time.Minute

// open makes one request and returns the body of the answer, which must be closed.
func (c *batchCall) open(ctx context.Context, method, path, contentType string, body io.Reader) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		cancel()
		return nil, &BatchError{Final: true, Message: "the base URL of the provider " + c.p.Name + " is no URL"}
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	c.p.Config.API.SetHeaders(request.Header, c.key)
	response, err := c.j.client.Do(request)
	if err != nil {
		cancel()
		return nil, &BatchError{Message: "the provider " + c.p.Name + " cannot be reached: " + err.Error()}
	}
	if response.StatusCode < 300 {
		return batchBody{response.Body, cancel}, nil
	}
	defer cancel()
	defer func() { _ = response.Body.Close() }()                          // only read
	said, _ := io.ReadAll(io.LimitReader(response.Body, model.MaxAnswer)) // the body only explains the status
	failed := c.p.Failed(c.q.Model, response.StatusCode, said, nil)       // "the provider … refuses the request"
	out := &BatchError{Message: failed.Message}
	out.Final = !retry.Temporary(response.StatusCode)
	out.After, _ = retry.After(response.Header, c.j.o.Now())
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
func (c *batchCall) json(ctx context.Context, method, path string, in, out any) error {
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
	data, err := io.ReadAll(io.LimitReader(response, model.MaxAnswer))
	if err == nil && out != nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return &BatchError{Message: fmt.Sprintf("the provider %s answers with something else than it should: %v",
			c.p.Name, err)}
	}
	return nil
}

// clockSkew is how far the provider's clock may be behind ours.
const clockSkew = 2 * time.Minute
