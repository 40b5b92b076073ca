package gateway

import (
	"context"
	"sync"
)

// readiness says how far a server has come: either the client has seen its tools, or it cannot be
// reached. The first of the two counts.
type readiness struct {
	once   sync.Once
	ready  chan struct{} // closed when the client has seen the tools
	failed chan struct{} // closed after err is set
	err    error
}

func newReadiness() *readiness {
	return &readiness{ready: make(chan struct{}), failed: make(chan struct{})}
}

// mark records that the client has seen the tools.
func (r *readiness) mark() { r.once.Do(func() { close(r.ready) }) }

// fail records that the server cannot be reached.
func (r *readiness) fail(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.failed)
	})
}

// isReady reports whether the client has seen the tools.
func (r *readiness) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// wait waits until the client has seen the tools. failure says why the server could not be reached.
// err is the end of ctx.
func (r *readiness) wait(ctx context.Context) (failure, err error) {
	select {
	case <-r.ready:
		return nil, nil
	case <-r.failed:
		return r.err, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
