// Package modelproxy is a reverse proxy on loopback between agents and the models that they use. It
// keeps the provider's key out of the agent, counts calls and tokens, and notices a model that
// fails: agents hide that, and some end their turn as if nothing had happened.
//
// [New] starts a [Proxy]; [Proxy.Open] makes a [Session] for one rollout. The agent is given
// [Session.URL] in the place of its provider's URL and [Session.Token] in the place of its key.
// Requests and answers pass unchanged, streams without delay, and are read on the way.
// [Session.Usage] has the tokens of the rollout, [Session.Failure] the failure of its last model
// call.
//
// The package knows the wire formats of OpenAI (chat completions and responses), Anthropic and
// Gemini as far as they tell who called, what it cost and how it ended. It knows nothing of agents,
// rollouts or stores.
package modelproxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// headerTimeout is how long a client may take to send a request's header. There is no other time
// limit: a model may think for an hour.
const headerTimeout = 30 * time.Second

// Options are the options of a proxy.
type Options struct {
	// Transport makes the requests to providers. Nil means one like http.DefaultTransport, which
	// obeys HTTPS_PROXY. It must not decompress answers by itself if they are to pass unchanged.
	Transport http.RoundTripper
}

// Proxy listens on 127.0.0.1 for the requests of all sessions.
type Proxy struct {
	server   *http.Server
	listener net.Listener
	reverse  *httputil.ReverseProxy
	serving  sync.WaitGroup
	// own is the transport that the proxy has made; nil if it was given one.
	own *http.Transport

	mu     sync.Mutex
	closed bool
	// sessions maps digests of tokens to sessions. With a digest the time of a look-up does not
	// reveal how much of a token was right.
	sessions map[[sha256.Size]byte]*Session
}

// errClosed is the error of a closed proxy or session.
var errClosed = errors.New("the model proxy is closed")

// New starts a proxy. It must be closed.
func New(o Options) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("model proxy: %w", err)
	}
	p := &Proxy{listener: listener, sessions: map[[sha256.Size]byte]*Session{}}
	if o.Transport == nil {
		p.own = http.DefaultTransport.(*http.Transport).Clone()
		p.own.DisableCompression = true  // otherwise it asks for gzip where the agent did not, and unpacks it
		p.own.MaxIdleConnsPerHost = 1000 // many rollouts, one provider
		p.own.MaxIdleConns = 0
		o.Transport = p.own
	}
	p.reverse = newReverse(o.Transport)
	p.server = newServer(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, nil) })
	p.serving.Go(func() { _ = p.server.Serve(listener) }) // ends with Close
	return p, nil
}

func newServer(serve http.HandlerFunc) *http.Server {
	// The calls record broken connections, so the server does not log them.
	return &http.Server{Handler: serve, ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
}

// Open makes a session: a token that leads to the upstream. It must be closed.
func (p *Proxy) Open(u Upstream) (*Session, error) {
	target, err := u.parse()
	if err != nil {
		return nil, err
	}
	s := &Session{proxy: p, upstream: u, target: target, token: tokenPrefix + rand.Text() + rand.Text(), turn: true}
	s.redactor = u.redactor(s.token)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.cut, s.cutOff = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		s.cancel()
		s.cutOff()
		return nil, errClosed
	}
	p.sessions[digest(s.token)] = s
	return s, nil
}

// Close closes all sessions and ends the running requests. The usage of the sessions can still be
// read.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	open := make([]*Session, 0, len(p.sessions))
	for _, s := range p.sessions {
		open = append(open, s)
	}
	p.mu.Unlock()
	var errs []error
	for _, s := range open {
		_, err := s.Close()
		errs = append(errs, err)
	}
	errs = append(errs, p.server.Close())
	p.serving.Wait()
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

// find returns the session of a token, or nil.
func (p *Proxy) find(token string) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[digest(token)]
}

func (p *Proxy) forget(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, digest(s.token))
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// serve serves one request. If only is given, the request must belong to that session, since a unix
// socket belongs to one session.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, only *Session) {
	s := p.authenticate(r)
	switch {
	case s == nil || only != nil && s != only || !s.enter():
		refuse(w, http.StatusUnauthorized, "authentication_error",
			"this request bears no token of a running rollout; use the API key and the base URL that the agent was given")
		return
	case !isBelow(r.URL.Path):
		defer s.exit()
		refuse(w, http.StatusBadRequest, "invalid_request_error",
			"the path must begin with / and must not contain . or .. segments")
		return
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		defer s.exit()
		refuse(w, http.StatusNotImplemented, "invalid_request_error",
			"the model proxy forwards HTTP requests but no websockets")
		return
	}
	defer s.exit()
	if err := s.refused(); err != nil {
		// Clients do not repeat a request with this status.
		refuse(w, http.StatusPaymentRequired, "billing_error", err.Error())
		return
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	control := http.NewResponseController(w)
	// Otherwise the server closes the request when the answer begins, while the request may still
	// be on its way to the provider. The transport would take that for a broken request and cut the
	// answer off.
	_ = control.EnableFullDuplex() // HTTP/1 supports it
	defer context.AfterFunc(s.cut, func() {
		_ = control.SetReadDeadline(time.Unix(1, 0)) // connections of this server have deadlines
		_ = control.SetWriteDeadline(time.Unix(1, 0))
	})()
	x := newExchange(s, r)
	defer x.end()
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
}

// refuse answers in the proxy's own name, in a shape that the clients of all four formats can read.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// If the answer cannot be written, nobody reads it.
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{
		"type": kind, "code": status, "message": "evalrun's model proxy: " + message,
	}})
}
