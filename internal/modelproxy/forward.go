package modelproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
)

// exchangeKey finds the *exchange in the context of a request.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// newReverse makes the reverse proxy that forwards the requests of all sessions.
func newReverse(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      transport,
		FlushInterval:  -1, // at once
		Rewrite:        rewrite,
		ModifyResponse: receive,
		ErrorHandler:   unanswered,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
}

// rewrite turns the agent's request into the request to the provider.
func rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In)
	target, out := x.session.target, r.Out
	out.URL.Scheme, out.URL.Host, out.Host = target.Scheme, target.Host, target.Host
	// The paths stay escaped as they were sent: a model's name may hold an escaped slash.
	out.URL.RawPath = strings.TrimSuffix(target.EscapedPath(), "/") + r.In.URL.EscapedPath()
	out.URL.Path, _ = url.PathUnescape(out.URL.RawPath) // both halves were parsed before
	query := x.session.substitute(out.Header, r.In.URL.RawQuery)
	out.URL.RawQuery = strings.Trim(target.RawQuery+"&"+query, "&")
	// A compressed answer cannot be read in passing.
	out.Header.Del("Accept-Encoding")
	// A client's wish for another protocol is not forwarded.
	out.Header.Del("Upgrade")
	out.Header.Del("Connection")
	if x.call != nil && out.Body != nil {
		out.Body = &requestBody{ReadCloser: out.Body, x: x}
	}
}

// isBelow reports whether a path stays below the path to which it is appended.
func isBelow(path string) bool {
	return strings.HasPrefix(path, "/") && !slices.ContainsFunc(strings.Split(path, "/"), func(segment string) bool {
		return segment == "." || segment == ".."
	})
}

// redirect is the error for an answer that would lead the agent past the proxy.
type redirect struct{ from, to string }

// Error implements error.
func (r redirect) Error() string {
	return fmt.Sprintf("%s answers with a redirect to %s; configure the URL that it leads to", r.from, r.to)
}

// receive reads the header of an answer, and wraps the body so that it is read in passing.
func receive(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	x.answered(resp.StatusCode)
	if resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "" {
		to := "another URL"
		if u, err := resp.Location(); err == nil {
			to = u.Scheme + "://" + u.Host + u.EscapedPath() // the query may hold the key
		}
		return redirect{x.session.host(), to}
	}
	for _, values := range resp.Header {
		for i, v := range values {
			values[i] = x.session.redactor.String(v)
		}
	}
	encoded := resp.Header.Get("Content-Encoding") != ""
	if resp.StatusCode >= 400 && !encoded && resp.Body != http.NoBody && x.session.redactor != nil {
		// Some servers repeat a key that they reject.
		resp.Body = newCleanBody(resp.Body, x.session.redactor)
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	if x.call != nil {
		resp.Body = &responseBody{ReadCloser: resp.Body, x: x, left: resp.ContentLength, opaque: encoded}
		if resp.ContentLength == 0 {
			x.over(encoded)
		}
	}
	return nil
}

// unanswered answers in the place of a provider that has not answered.
func unanswered(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	message := x.session.redactor.String(err.Error())
	if !errors.As(err, &redirect{}) {
		message = "cannot reach " + x.session.host() + ": " + message
	}
	x.broken(message)
	refuse(w, http.StatusBadGateway, "api_error", message)
}

// requestBody reads a request in passing.
type requestBody struct {
	io.ReadCloser
	x *exchange
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.sent(p[:n], err)
	return n, err
}

// responseBody reads an answer in passing.
type responseBody struct {
	io.ReadCloser
	x *exchange
	// left is how many bytes are still to come; below 0 if that is unknown. The last byte ends a
	// call before it is passed on, so that a client that has read its answer finds it counted.
	left int64
	// opaque marks a body that cannot be read in passing.
	opaque bool
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left >= 0 {
		b.left -= int64(n)
		if b.left == 0 {
			err = io.EOF
		}
	}
	b.x.received(p[:n], b.opaque)
	switch {
	case err == io.EOF:
		b.x.over(b.opaque)
	case err != nil:
		b.x.broken("the answer broke off: " + b.x.session.redactor.String(err.Error()))
	}
	return n, err
}

// cleanBody is a body without secrets.
type cleanBody struct {
	io.Reader
	io.Closer
}

func newCleanBody(body io.ReadCloser, r *redact.Redactor) cleanBody {
	c := &cleaner{from: body, chunk: make([]byte, 4<<10)}
	c.to = r.Writer(&c.clean)
	return cleanBody{c, body}
}

// cleaner turns a redactor's writer into a reader.
type cleaner struct {
	from  io.Reader
	to    io.WriteCloser
	chunk []byte
	clean bytes.Buffer
	err   error
}

// Read implements io.Reader.
func (c *cleaner) Read(p []byte) (int, error) {
	for c.clean.Len() == 0 && c.err == nil {
		var n int
		n, c.err = c.from.Read(c.chunk)
		_, _ = c.to.Write(c.chunk[:n]) // to memory
		if c.err != nil {
			_ = c.to.Close()
		}
	}
	if c.clean.Len() == 0 {
		return 0, c.err
	}
	return c.clean.Read(p)
}
