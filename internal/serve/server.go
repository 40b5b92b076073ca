// Package serve is the HTTP server of evalrun serve: the listener, access, and the interface /v1.
// Package service does the work; this package reads requests, checks their senders, and writes
// answers. Other interfaces are mounted in routes.go.
package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/serve/mcpserver"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/sse"
	"github.com/evalrun/evalrun/runner"
)

const (
	// headerTimeout is how long the head of a request may take, bodyTimeout its body by default, and
	// answerTimeout the answer after the handler has begun to write.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 60 * time.Second
	answerTimeout = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// maxWait is how long a request may wait for something to happen.
	maxWait = 60 * time.Second
	// drainTimeout is how long open requests may take when the server ends.
	drainTimeout = 10 * time.Second
)

// Options are the dependencies of a server.
type Options struct {
	Service *service.Service
	// PublicURL is the URL at which callers reach the server, if that is not where it listens; nil
	// otherwise.
	PublicURL *url.URL
	// Rate is how many requests a second each token may send; 0 means DefaultRate.
	Rate float64
	// Ready, if not nil, returns why the service does not work; nil if it does.
	Ready func() error
	// Tick, if not nil, does what is due in the store, for at most maxTime. It is for servers without an
	// executor.
	Tick func(ctx context.Context, maxTime time.Duration) (runner.Ticked, error)
	// Person is the user that a one-time link lets in. Answers are recorded with this name.
	Person string
	// Audit, if not nil, gets a line for every change.
	Audit *Audit
	// Log gets the errors; nil drops them.
	Log *slog.Logger
	// BodyTimeout is how long the body of a request may take; 0 means 60 s.
	BodyTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server answers requests.
type Server struct {
	o     Options
	guard *guard
	rates *rates
	mcp   *mcpserver.Server
	// draining is closed when the server is to end: no request waits any more.
	draining  chan struct{}
	drainOnce sync.Once
	streams   sse.Slots
	sessions  sessions
	metrics   *metrics
}

// New makes a server.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.BodyTimeout = cmp.Or(o.BodyTimeout, bodyTimeout)
	s := &Server{o: o, draining: make(chan struct{}), streams: sse.Slots{Most: maxStreams}}
	s.rates = newRates(&s.o)
	s.sessions = sessions{o: &s.o, rates: s.rates}
	s.metrics = newMetrics(o.Service.Store(), &s.streams)
	routes, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.guard, err = newGuard(&s.o, s.rates, s.metrics, routes)
	return s, err
}

// Serve answers requests on a listener until drain is closed. Then it ends waiting requests, lets
// the others finish, and returns. It closes the listener.
func (s *Server) Serve(ln net.Listener, drain <-chan struct{}) error {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-drain:
	}
	s.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err := h.Shutdown(ctx)
	if err != nil {
		err = h.Close() // the remaining requests take too long
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// Link is the path of a link that opens a page in a browser. It works once, and admits the browser
// for 12 hours.
func (s *Server) Link(page string) string { return s.sessions.link(page) }

// Drain ends waiting requests, and makes the server not ready from now on.
func (s *Server) Drain() {
	s.drainOnce.Do(func() {
		close(s.draining)
		s.mcp.Close()
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.guard.ServeHTTP(w, r) }
