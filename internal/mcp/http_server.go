package mcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The headers of MCP.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerParam     = "Mcp-Param-"
	headerLastEvent = "Last-Event-ID"
)

// keepAlive is how long an event stream may be silent before a comment is written to it.
const keepAlive = 25 * time.Second

// lingering is how long a client may take to read the rest when its session has ended.
const lingering = 2 * time.Second

// bodyTimeout is how long a client may take to send the body of a request. Nobody waits for one
// that never comes.
const bodyTimeout = time.Minute

// HTTPHandler serves clients of both eras over streamable HTTP. It must be closed.
type HTTPHandler struct {
	handler   Handler
	opts      ServerOptions
	keepAlive time.Duration
	// bodyTimeout is how long a client may take for a body.
	bodyTimeout time.Duration

	// ctx ends with Close; every session's context is below it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// serving counts the requests of HTTP that have been read, and the goroutines that end sessions.
	serving sync.WaitGroup

	// restoring is held while a session is looked for outside of sessions, so that each is restored
	// once.
	restoring sync.Mutex

	mu     sync.Mutex
	closed bool
	// sessions are the legacy sessions that are open, and the ended ones whose end the handler has not
	// dealt with.
	sessions map[string]*httpSession
}

// httpSession is a session and the facts that tell whether it is idle.
type httpSession struct {
	*Session
	users    int // requests of HTTP, streams included
	lastUsed time.Time
	over     bool // the session is not found any more, and must not be restored
}

// NewHTTPHandler serves both eras over streamable HTTP on one path. It does not authenticate.
func NewHTTPHandler(h Handler, o ServerOptions) *HTTPHandler {
	o = o.withDefaults()
	x := &HTTPHandler{
		handler: h, opts: o, keepAlive: keepAlive, bodyTimeout: bodyTimeout, sessions: map[string]*httpSession{},
	}
	x.ctx, x.cancel = context.WithCancelCause(context.Background())
	if o.IdleTimeout > 0 {
		x.serving.Go(func() {
			ticker := time.NewTicker(max(o.IdleTimeout/8, time.Millisecond))
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					x.sweep()
				case <-x.ctx.Done():
					return
				}
			}
		})
	}
	return x
}

// Close ends all sessions and streams. It waits for the handlers and for pending writes, but for
// two seconds at most if a client does not read. Requests are refused from then on.
func (x *HTTPHandler) Close() {
	x.mu.Lock()
	x.closed = true
	open := make([]*httpSession, 0, len(x.sessions))
	for _, s := range x.sessions {
		open = append(open, s)
	}
	x.mu.Unlock()
	x.cancel(ErrShutdown)
	for _, s := range open {
		s.end(ErrShutdown)
	}
	for _, s := range open { // somebody else may be ending it
		<-s.gone
	}
	x.serving.Wait()
}

// sweep ends the sessions that are idle.
func (x *HTTPHandler) sweep() {
	var idle []*httpSession
	x.mu.Lock()
	for _, s := range x.sessions {
		if !s.over && s.users == 0 && x.opts.Now().Sub(s.lastUsed) >= x.opts.IdleTimeout && !s.isServing() {
			idle = append(idle, s)
			s.over = true
		}
	}
	x.mu.Unlock()
	for _, s := range idle {
		s.end(fmt.Errorf("%w: it was idle for %v", errEnded, x.opts.IdleTimeout))
	}
}

// isServing reports whether a request is being served, whoever waits for it.
func (s *Session) isServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) > 0
}

// newSession makes a legacy session that this handler closes. The session is entered when it has
// been initialized.
func (x *HTTPHandler) newSession(id string) *Session {
	s := newSession(x.ctx, id, Legacy, "", x.handler)
	s.ended = func(s *Session) {
		x.mu.Lock()
		defer x.mu.Unlock()
		known := x.sessions[s.id]
		if known != nil {
			known.over = true
		}
		x.serving.Go(func() {
			s.close()
			if known != nil {
				x.mu.Lock()
				defer x.mu.Unlock()
				delete(x.sessions, s.id)
			}
		})
	}
	s.openStreams(rand.Text()[:8], x.opts.MaxMessage)
	s.opened = x.enter
	return s
}

// enter makes a session findable by its id.
func (x *HTTPHandler) enter(s *Session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed && s.ctx.Err() == nil { // otherwise it has ended before it was open
		x.sessions[s.id] = &httpSession{Session: s, lastUsed: x.opts.Now()}
	}
}

// find finds a session, or restores it. The caller releases it.
func (x *HTTPHandler) find(ctx context.Context, id string) *httpSession {
	if s, known := x.use(id); known || x.opts.Restore == nil {
		return s
	}
	x.restoring.Lock()
	defer x.restoring.Unlock()
	if s, known := x.use(id); known { // another request was quicker
		return s
	}
	restored := x.newSession(id)
	version, ok := x.opts.Restore(ctx, restored)
	if !ok {
		restored.cancel(errEnded)
		return nil
	}
	restored.initialized(version)
	s, _ := x.use(id)
	if s == nil {
		restored.end(ErrShutdown) // unless it has ended already, x is closed
	}
	return s
}

// use finds a session, unless it has ended. known says that it must not be restored.
func (x *HTTPHandler) use(id string) (s *httpSession, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, known = x.sessions[id]
	if !known || s.over {
		return nil, known
	}
	s.users++
	return s, true
}

func (x *HTTPHandler) release(s *httpSession) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s.users--
	s.lastUsed = x.opts.Now()
}

// begin counts a request of HTTP, unless the handler is closed. The caller calls x.serving.Done.
func (x *HTTPHandler) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	x.serving.Add(1)
	return true
}

// BoundBody limits the time for the body of a request, also if it is never read: the HTTP server
// wants the rest of it before it goes on with the connection. The bound ends with the body.
func BoundBody(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)) // a writer that knows no deadline is a test's
}

// ServeHTTP implements [http.Handler].
func (x *HTTPHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		BoundBody(w, x.bodyTimeout)
	}
	if err := CheckHost(r, x.opts.Hosts...); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	version := r.Header.Get(headerVersion)
	allowed := []string{http.MethodPost, http.MethodGet, http.MethodDelete}
	if version == Version2026_07_28 {
		allowed = allowed[:1]
	}
	if !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.Method == http.MethodPost {
		x.servePost(w, r)
		return
	}
	if !x.begin() {
		http.Error(w, ErrShutdown.Error(), http.StatusServiceUnavailable)
		return
	}
	defer x.serving.Done()
	if _, ok := EraOf(version); version != "" && !ok {
		writeJSON(w, http.StatusBadRequest, errorMessage(nil, unsupportedVersion(version)).Encode())
		return
	}
	if _, stream := accepts(r); r.Method == http.MethodGet && !stream {
		http.Error(w, "the answer to GET is text/event-stream, which the header Accept does not allow",
			http.StatusNotAcceptable)
		return
	}
	s := x.sessionOf(w, r)
	if s == nil {
		return
	}
	defer x.release(s)
	if r.Method == http.MethodDelete {
		s.end(errEnded)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	x.serveGet(w, r, s.Session)
}

// sessionOf finds the session that a request names. If there is none, sessionOf answers that and
// returns nil. The caller releases the session.
func (x *HTTPHandler) sessionOf(w http.ResponseWriter, r *http.Request) *httpSession {
	id := r.Header.Get(headerSession)
	if id == "" {
		http.Error(w, "the header "+headerSession+" is missing", http.StatusBadRequest)
		return nil
	}
	s := x.find(r.Context(), id)
	if s == nil { // in plain text, because the Go SDK does not take a JSON-RPC error for a lost session
		http.Error(w, "session not found", http.StatusNotFound)
	}
	return s
}

// CheckHost refuses a request that was meant for another host, or comes from another site.
// Otherwise a web site that has its name resolve to this machine could use a server on loopback
// (DNS rebinding). Loopback hosts are always right. own are the others; "*" means all.
func CheckHost(r *http.Request, own ...string) error {
	if !isOwn(r.Host, own) {
		return fmt.Errorf("the header Host names %q, which is not this server", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !isOwn(u.Host, own) {
			return fmt.Errorf("the header Origin names %q, which is not this server", origin)
		}
	}
	return nil
}

// isOwn reports whether a host, which may have a port, is ours.
func isOwn(host string, own []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(own, func(own string) bool { return own == "*" || strings.EqualFold(own, host) })
}

// accepts returns which answers a request allows. A request that does not say allows all, and so do
// types with a star.
func accepts(r *http.Request) (json, stream bool) {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true, true
	}
	for value := range strings.SplitSeq(strings.Join(values, ","), ",") {
		kind := mediaType(value)
		json = json || kind == "application/json" || kind == "application/*" || kind == "*/*"
		stream = stream || kind == "text/event-stream" || kind == "text/*" || kind == "*/*"
	}
	return json, stream
}

// isJSON reports whether a request says that its body is JSON.
func isJSON(r *http.Request) bool {
	return mediaType(r.Header.Get("Content-Type")) == "application/json"
}

// mediaType is the type that a Content-Type or a part of an Accept names, without its parameters.
func mediaType(value string) string {
	kind, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}
