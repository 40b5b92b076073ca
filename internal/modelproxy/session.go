package modelproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
)

// tokenPrefix tells people who find a token what it is.
const tokenPrefix = "evalrun-"

// grace is how long a client may take to notice that its request has ended.
const grace = 500 * time.Millisecond

// The values of Upstream.API.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
)

// Upstream is a provider as the agent's own configuration would name it.
type Upstream struct {
	// API is OpenAI, Anthropic or Gemini; if it is empty the path of each request tells.
	API string
	// URL is the base URL that the agent would be given without the proxy. The path of the agent's
	// request is appended to it.
	URL string
	// Key replaces the session's token in a request, wherever the token is. Without a key the token
	// is removed.
	Key string
	// Headers are set on every request and override the agent's own. Their values are treated as
	// secrets.
	Headers map[string]string
	// Counted, if not nil, is called with each call that has ended, before its last byte is passed
	// on and never for two at once. After an error all further calls are refused with it.
	Counted func(Call) error
	// Offered, if not nil, is called with the offer of each call of a turn, never for two at once,
	// until it returns false.
	Offered func(Offer) (more bool)
}

func (u Upstream) parse() (*url.URL, error) {
	switch u.API {
	case "", OpenAI, Anthropic, Gemini:
	default:
		return nil, fmt.Errorf("model API %q: expected %s, %s or %s", u.API, OpenAI, Anthropic, Gemini)
	}
	target, err := url.Parse(u.URL)
	switch {
	case err != nil:
		var parsing *url.Error
		if errors.As(err, &parsing) {
			err = parsing.Err // the error without the URL, which may hold a password
		}
		return nil, fmt.Errorf("model URL: %w", err)
	case target.Scheme != "http" && target.Scheme != "https" || target.Host == "":
		return nil, fmt.Errorf("model URL %q: expected http(s)://host[:port][/path]", target.Redacted())
	case target.User != nil:
		return nil, fmt.Errorf("model URL %q: it must not hold a user or a password; give the key by itself",
			target.Redacted())
	case target.Fragment != "":
		return nil, fmt.Errorf("model URL %q: it must not have a fragment", target.Redacted())
	}
	return target, nil
}

func (u Upstream) redactor(token string) *redact.Redactor {
	secrets := map[string]string{"MODEL_KEY": u.Key, "MODEL_TOKEN": token}
	for name, value := range u.Headers {
		secrets["MODEL_HEADER_"+name] = value
	}
	return redact.New(secrets)
}

// Session is one agent's way to its model. It is safe for concurrent use.
type Session struct {
	proxy    *Proxy
	upstream Upstream
	target   *url.URL
	token    string
	redactor *redact.Redactor

	// ctx is done when the session is closed, and ends the running requests. cut is done a little
	// later, and cuts the connections of requests that have not ended, whose clients neither read
	// nor write.
	ctx, cut       context.Context
	cancel, cutOff context.CancelFunc
	running        sync.WaitGroup
	closing        sync.Once
	closed         error

	mu      sync.Mutex
	revoked bool
	// inFlight counts the running requests.
	inFlight int
	turn     bool
	sockets  []*http.Server
	serving  sync.WaitGroup
	ledger   ledger
	// refusal is the error with which further calls are refused; nil if they are allowed.
	refusal error

	// offering is held while Upstream.Offered is called. offersEnded says that Offered wants no
	// more calls.
	offering    sync.Mutex
	offersEnded bool
}

// URL returns the base URL for the agent, without a path and a slash at its end.
func (s *Session) URL() string { return "http://" + s.proxy.listener.Addr().String() }

// Token returns the API key for the agent.
func (s *Session) Token() string { return s.token }

// ServeUnix serves this session, and no other, on a unix socket until the session is closed. It
// replaces a socket that was left at that path.
func (s *Session) ServeUnix(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("model proxy: %w", err)
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		if len(path) > 100 { // 108 bytes on Linux, 104 on macOS
			err = fmt.Errorf("%w; the path of a unix socket must have less than 104 bytes, this one has %d", err, len(path))
		}
		return fmt.Errorf("model proxy: %w", err)
	}
	// A client that connects before this needs the token all the same.
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("model proxy: %w", errors.Join(err, listener.Close()))
	}
	server := newServer(func(w http.ResponseWriter, r *http.Request) { s.proxy.serve(w, r, s) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked {
		return errors.Join(errClosed, listener.Close())
	}
	s.sockets = append(s.sockets, server)
	s.serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	return nil
}

// Turn says whether a turn of the agent is running: calls that begin outside turns are side calls.
// Until it is called for the first time, a turn counts as running. The turn should end as soon as
// the agent says so: a call with tools before that looks like a call of its loop.
func (s *Session) Turn(active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = active
}

// Close revokes the token, ends the running requests and returns the whole usage. Later calls
// return the same.
func (s *Session) Close() (Usage, error) {
	s.closing.Do(func() {
		s.proxy.forget(s)
		s.mu.Lock()
		s.revoked = true
		sockets := s.sockets
		s.mu.Unlock()
		s.cancel()
		timer := time.AfterFunc(grace, s.cutOff)
		s.running.Wait()
		timer.Stop()
		s.cutOff()
		var errs []error
		for _, server := range sockets {
			errs = append(errs, server.Close())
		}
		s.serving.Wait()
		s.closed = errors.Join(errs...)
	})
	return s.Usage(), s.closed
}

// enter begins a request, unless the session is closed. exit ends it.
func (s *Session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.revoked {
		s.running.Add(1)
		s.inFlight++
	}
	return !s.revoked
}

// count counts a call that has ended.
func (s *Session) count(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.add(c)
	if s.upstream.Counted == nil {
		return
	}
	if err := s.upstream.Counted(c); s.refusal == nil {
		s.refusal = err
	}
}

// wantsOffers reports whether the offers of calls must be reported.
func (s *Session) wantsOffers() bool {
	s.offering.Lock()
	defer s.offering.Unlock()
	return s.upstream.Offered != nil && !s.offersEnded
}

// offered reports the offer of a call.
func (s *Session) offered(o Offer) {
	s.offering.Lock()
	defer s.offering.Unlock()
	if !s.offersEnded {
		s.offersEnded = !s.upstream.Offered(o)
	}
}

// refused returns the error with which further calls are refused; nil if they are allowed.
func (s *Session) refused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal
}

func (s *Session) exit() {
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	s.running.Done()
}

// Busy reports whether a request is being answered: the model thinks.
func (s *Session) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight > 0
}

// host returns the name of the upstream for messages.
func (s *Session) host() string {
	return strings.TrimSuffix(s.target.Scheme+"://"+s.target.Host+s.target.Path, "/")
}
