package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/access"
)

// exchange is one request with its answer, in the guard's view.
type exchange struct {
	http.ResponseWriter
	status   int
	identity access.Identity
	// token is the id of the caller's token, also if the request is refused. The audit log goes by
	// identity, so that nobody fills it with what is refused.
	token string
	// remote is the address of the client.
	remote string
	// object is the object that was changed, for the audit log.
	object  string
	failure error
}

type exchangeKey struct{}

func (x *exchange) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// about records for the audit log which object a request is about.
func about(r *http.Request, object string) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.object = object
	}
}

// remote is the address of the client whose request has the context.
func remote(ctx context.Context) string {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x.remote
	}
	return ""
}

// failed records for the log why a request failed through no fault of its caller.
func failed(r *http.Request, err error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.failure = err
	}
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the writer.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// timedBody is a body that must arrive in time. When all of it has arrived the deadline ends, which
// would end a handler that waits. A body that does not arrive keeps its deadline: the server reads
// on after the handler, and would wait for ever.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.noDeadline()
	}
	return n, err
}

func (b *timedBody) noDeadline() { _ = b.control.SetReadDeadline(time.Time{}) }
