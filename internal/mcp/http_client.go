package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

const (
	clientJSON   = "application/json"
	clientSSE    = "text/event-stream"
	clientAccept = clientJSON + ", " + clientSSE

	clientDeleteTimeout = 5 * time.Second
	// What follows an answer on its stream is read up to this size and time, so that the TCP
	// connection can be used again.
	clientDrainBytes = 64 << 10
	clientDrainTime  = time.Second
)

// httpLink is streamable HTTP. Each message is a POST, and each call has a stream of its own, which
// its caller reads.
type httpLink struct {
	c *Client
	clientHTTP

	mu      sync.Mutex
	session string // empty: none
	version string // of Legacy; empty before the handshake
	tools   map[string]clientTool
}

func newHTTPLink(c *Client, t Target) *httpLink {
	return &httpLink{c: c, clientHTTP: newClientHTTP(t), tools: map[string]clientTool{}}
}

func (l *httpLink) sessionID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

func (l *httpLink) setSession(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = id
}

func (l *httpLink) setVersion(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// call posts a request and reads the server's messages until the answer is there.
func (l *httpLink) call(ctx context.Context, p *clientCall) (json.RawMessage, error) {
	bound, detach, cancel := l.c.life.bind(ctx)
	rest, err := l.exchange(bound, p)
	if rest == nil {
		cancel()
	} else {
		detach()
		l.drain(rest, cancel)
	}
	if !l.c.calls.take(p) {
		a := <-p.answers
		if a.err == nil && p.Method == MethodToolsList && l.c.era == Modern {
			l.rememberTools(a.result)
		}
		return a.result, a.err
	}
	if ctx.Err() != nil {
		if l.c.era == Legacy {
			l.c.tellCancelled(p, context.Cause(ctx)) // in Modern the end of the stream says so
		}
		return nil, clientContextError(ctx)
	}
	if err == nil {
		err = fmt.Errorf("%w: there is none in its response", errClientMalformed)
	}
	return nil, err
}

// exchange settles a call, or returns why it could not. It also returns the unread rest of the
// answer's stream.
func (l *httpLink) exchange(ctx context.Context, p *clientCall) (rest io.ReadCloser, err error) {
	session := l.sessionID()
	resp, err := l.post(ctx, p.message(), p.Header)
	if err != nil {
		return nil, err
	}
	if p.Method == MethodInitialize {
		l.setSession(resp.Header.Get("Mcp-Session-Id"))
	}
	kind := mediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode/100 != 2:
		defer resp.Body.Close()
		return nil, l.failure(resp, p.rawID(), session != "")
	case kind == clientSSE:
		return l.stream(ctx, p, resp.Body)
	}
	defer resp.Body.Close()
	body, err := readClientBody(resp.Body, resp.ContentLength, l.c.o.MaxMessage)
	switch {
	case errors.Is(err, errClientTooLong):
		return nil, err
	case err != nil:
		return nil, clientGone("the response was cut: %w", err)
	case kind != clientJSON && !jsonobj.Valid(body):
		return nil, fmt.Errorf("%w: HTTP %d with content type %q: %s",
			errClientMalformed, resp.StatusCode, kind, clientExcerpt(body))
	}
	l.c.receiver.receive(p, body)
	return nil, nil
}

// drain reads the little that follows an answer.
func (l *httpLink) drain(rest io.ReadCloser, cancel context.CancelFunc) {
	end := func() {
		rest.Close()
		cancel()
	}
	if !l.c.life.spawn(func() {
		defer end()
		t := time.AfterFunc(clientDrainTime, cancel)
		defer t.Stop()
		_, _ = io.Copy(io.Discard, io.LimitReader(rest, clientDrainBytes))
	}) {
		end()
	}
}

// post sends a message. more are headers beside those of the target and of the protocol.
func (l *httpLink) post(ctx context.Context, m message, more map[string]string) (*http.Response, error) {
	req, err := l.request(ctx, http.MethodPost, l.url, m.Encode())
	if err != nil {
		return nil, err
	}
	l.addState(req.Header)
	if l.c.era == Modern {
		if err := l.addStandard(req.Header, m); err != nil {
			return nil, err
		}
	}
	for name, value := range more {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	return l.do(req)
}

// addState adds the headers that every request of the era bears.
func (l *httpLink) addState(h http.Header) {
	if l.c.era == Modern {
		h.Set("Mcp-Protocol-Version", Version2026_07_28)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != "" {
		h.Set("Mcp-Session-Id", l.session)
	}
	if l.version != "" {
		h.Set("Mcp-Protocol-Version", l.version)
	}
}

func (l *httpLink) send(ctx context.Context, m message) error {
	session := l.sessionID()
	bound, cancel := l.c.sending(ctx, m)
	defer cancel()
	resp, err := l.post(bound, m, nil)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return clientContextError(ctx)
	default:
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return l.failure(resp, nil, session != "")
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, clientDrainBytes)) // there should be nothing
	return nil
}

func (l *httpLink) close(endSession bool) error {
	defer l.closeIdle()
	if !endSession || l.c.era != Legacy || l.sessionID() == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), clientDeleteTimeout)
	defer cancel()
	for {
		err := l.deleteSession(ctx)
		// net/http gives a connection to the next request before the last one on it has returned.
		// If that one was ended together with ours, it takes the connection with it.
		if !errors.Is(err, errClientClosed) || ctx.Err() != nil {
			return err
		}
	}
}

func (l *httpLink) deleteSession(ctx context.Context) error {
	req, err := l.request(ctx, http.MethodDelete, l.url, nil)
	if err != nil {
		return err
	}
	l.addState(req.Header)
	resp, err := l.do(req)
	if err != nil {
		return fmt.Errorf("end the MCP session: %w", err)
	}
	resp.Body.Close() // the server need not support it, or has forgotten the session already
	return nil
}

// failure is the error for a status that is no success, of a request with an id; nil means a
// notification. It reads the body.
func (l *httpLink) failure(resp *http.Response, id json.RawMessage, hadSession bool) error {
	body, _ := readClientBody(resp.Body, resp.ContentLength, l.c.o.MaxMessage) // the part that is there
	status := newStatusError(resp, body)
	answer, own := clientErrorAnswer(body, id)
	processed := own && (answer.Code == CodeMethodNotFound || resp.StatusCode != http.StatusNotFound)
	switch {
	case l.c.era == Legacy && hadSession && !processed && isSessionLost(resp.StatusCode, body):
		return fmt.Errorf("%w: %w", ErrSessionLost, status)
	case status.Unauthorized():
		status.Answer = answer
		return status
	case answer != nil:
		return answer
	case id != nil && resp.StatusCode == http.StatusBadRequest && bytes.HasPrefix(body, []byte("JSON RPC not handled")):
		return Errorf(CodeMethodNotFound, "%s", status.Body) // the Go SDK's legacy server reports it so
	}
	return status
}

// isSessionLost distinguishes the loss of a session from other failures of a request that named it.
// The specification wants 404; server-everything and servers built like it answer 400.
func isSessionLost(status int, body []byte) bool {
	if status == http.StatusNotFound {
		return true
	}
	text := bytes.ToLower(body[:min(len(body), 1000)])
	return status == http.StatusBadRequest &&
		(bytes.Contains(text, []byte("session")) || bytes.Contains(text, []byte("not initialized")))
}

// clientErrorAnswer returns the JSON-RPC error in a body, nil if there is none. It may lack an id
// if the server could not read the request, but must not bear another one. own says that it bears
// the id of the request.
func clientErrorAnswer(body []byte, id json.RawMessage) (answer *Error, own bool) {
	o, err := jsonobj.ParseObject(body)
	if err != nil || !jsonobj.Valid(body) || !clientIsObject(o.Get("error")) {
		return nil, false
	}
	named := o.Get("id")
	own = id != nil && string(named) == string(id)
	if !own && !jsonobj.IsNull(named) {
		return nil, false
	}
	return ParseError(o.Get("error")), own
}

// readClientBody reads a body up to a length. It returns the part that was read with an error too.
func readClientBody(r io.Reader, length int64, limit int) ([]byte, error) {
	body, err := readAll(io.LimitReader(r, int64(limit)+1), length)
	if err == nil && len(body) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errClientTooLong, limit)
	}
	return body, err
}
