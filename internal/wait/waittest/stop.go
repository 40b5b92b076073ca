package waittest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
)

// stopAt makes a call whose context ends at its n-th step, and reports whether the call came to
// that step.
func (c *Case) stopAt(t *testing.T, n int, call func(ctx context.Context)) (stopped bool) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	steps := 0
	c.OnStep(func() {
		if steps++; steps == n {
			stop()
		}
	})
	defer c.OnStep(func() {})
	call(ctx)
	return steps >= n
}

// startStopped stops the start of a job at each of its steps, each time of another trigger. A stop
// is no fault of the job, and when it is started again there is one job.
func (c *Case) startStopped(t *testing.T, kind wait.Start) {
	t.Helper()
	if c.OnStep == nil || c.Starts == nil {
		return
	}
	for n, going := 1, true; going; n++ {
		job, before := c.Job, c.Starts()
		job.TriggerID = fmt.Sprintf("%s-%d", job.TriggerID, n)
		var key string
		var err error
		going = c.stopAt(t, n, func(ctx context.Context) { key, err = c.Source.Start(ctx, job) })
		var f *fault.Fault
		switch {
		case errors.As(err, &f):
			t.Errorf("a stop at step %d of the start has made the fault %v", n, f)
		case err != nil && kind == wait.AtMostOnce && c.Starts() != before:
			t.Errorf("after a stop at step %d nobody knows of the job: %v", n, err)
		case err != nil:
			key, err = c.Source.Start(t.Context(), job)
		}
		if key == "" || err != nil || c.Starts() != before+1 {
			t.Errorf("after a stop at step %d of the start: %d jobs, the key %q, %v", n, c.Starts()-before, key, err)
		}
	}
}

// checkStopped stops a check at each of its steps. A check that was stopped says the truth, or
// nothing.
func (c *Case) checkStopped(t *testing.T) {
	t.Helper()
	if c.OnStep == nil {
		return
	}
	want, err := c.Source.Check(t.Context(), c.Job)
	if err != nil {
		t.Fatal(err)
	}
	for n, going := 1, true; going; n++ {
		var got wait.Status
		var err error
		going = c.stopAt(t, n, func(ctx context.Context) { got, err = c.Source.Check(ctx, c.Job) })
		if err == nil && (got.Done != want.Done || !bytes.Equal(got.Payload, want.Payload) ||
			fmt.Sprint(got.Fault) != fmt.Sprint(want.Fault)) {
			t.Errorf("a stop at step %d of a check has made %+v of %+v", n, got, want)
		}
	}
}

// Transport sends requests, and tells of three steps of each: before it is sent, when its server
// has answered, and when the answer has been read.
type Transport struct {
	mu sync.Mutex
	f  func()
}

// OnStep sets what is called at each step.
func (t *Transport) OnStep(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.f = f
}

func (t *Transport) step() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f != nil {
		t.f()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.step()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	t.step()
	resp.Body = &steppedBody{resp.Body, t}
	return resp, nil
}

// steppedBody tells when all of it was read.
type steppedBody struct {
	io.ReadCloser
	t *Transport
}

func (b *steppedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.t != nil {
		b.t.step()
		b.t = nil
	}
	return n, err
}
