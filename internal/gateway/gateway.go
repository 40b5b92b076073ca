// Package gateway is a proxy between MCP clients and MCP servers. It passes messages on unchanged,
// in both protocol eras on both sides.
//
// [Listen] makes a [Gateway], which listens on loopback. [Gateway.Open] gives one client, such as
// the process of an agent, a token and an endpoint for each of its servers. The [Policy] of an
// endpoint decides what becomes of calls of tools: package suspend has one for clients that cannot
// wait, and package tasks one for clients that can. Package catalog serves all servers at one
// endpoint. The gateway knows none of the three, nor rollouts, task directories, agents or the
// store.
package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
)

// tokenPrefix tells people who find a token where it belongs.
const tokenPrefix = "evalrun-mcp-"

// pathPrefix begins the paths of the endpoints; the name of the server follows.
const pathPrefix = "/mcp/"

// tokenPath begins the paths for clients that cannot send a header: /t/TOKEN/mcp/NAME.
const tokenPath = "/t/"

// healthPath tells everybody whether the gateway serves clients.
const healthPath = "/healthz"

// ErrClosed says that the gateway is closed.
var ErrClosed = errors.New("the MCP gateway is closed")

// Gateway serves endpoints. It is safe for concurrent use and must be closed.
type Gateway struct {
	listener net.Listener // nil if it listens nowhere
	loopback bool
	server   *http.Server
	serving  sync.WaitGroup
	observer Observer // nil if nobody wants to know
	pages    map[string]http.Handler

	mu     sync.Mutex
	closed bool
	open   map[[sha256.Size]byte]*Access
}

// New makes a gateway that does not listen. Its clients are served by [Access.ServeStdio] or
// [Access.ServeUnix].
func New() *Gateway {
	g := &Gateway{open: map[[sha256.Size]byte]*Access{}, pages: map[string]http.Handler{}}
	g.server = newServer(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, nil) })
	return g
}

// Listen makes a gateway that listens on an address, such as 127.0.0.1:0.
func Listen(address string) (*Gateway, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("MCP gateway: %w", err)
	}
	g := New()
	tcp, _ := listener.Addr().(*net.TCPAddr)
	g.listener, g.loopback = listener, tcp != nil && tcp.IP.IsLoopback()
	g.serving.Go(func() { _ = g.server.Serve(listener) }) // ends with Close
	return g, nil
}

func newServer(serve http.HandlerFunc) *http.Server {
	return &http.Server{Handler: serve, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
}

// Addr is the address that the gateway listens on. A gateway from New has none, and its accesses
// have no URLs.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// Close ends every access and the gateway.
func (g *Gateway) Close() error {
	g.mu.Lock()
	g.closed = true
	var open []*Access
	for _, a := range g.open {
		open = append(open, a)
	}
	g.mu.Unlock()
	var errs []error
	for _, a := range open {
		errs = append(errs, a.Close())
	}
	errs = append(errs, g.server.Close())
	g.serving.Wait()
	return errors.Join(errs...)
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// refusedBody is how long a refused client may take to send the rest of its body.
const refusedBody = time.Second

// refuse answers a request that is not served, without waiting for its body. reason is that of
// [Refused].
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, status int, reason, why string) {
	if g.observer != nil {
		g.observer.Refused(Refused{Status: status, Reason: reason, Remote: r.RemoteAddr, Method: r.Method})
	}
	if r.ContentLength != 0 {
		mcp.BoundBody(w, refusedBody)
		w.Header().Set("Connection", "close")
	}
	http.Error(w, "evalrun's MCP gateway: "+why, status)
}

// health says whether the gateway serves clients.
func (g *Gateway) health(w http.ResponseWriter) {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		http.Error(w, "the gateway is being closed", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the client may have gone
}

// serve serves a request of a client that bears a token. If only is given, it serves that access
// alone, since a unix socket belongs to one client.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, only *Access) {
	// On other addresses the names by which we are called are unknown. Web sites do not reach a
	// socket.
	if only == nil && g.loopback {
		if err := mcp.CheckHost(r); err != nil {
			g.refuse(w, r, http.StatusForbidden, "host", err.Error())
			return
		}
	}
	if only == nil && r.URL.Path == healthPath {
		g.health(w)
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") { // the case does not matter: RFC 9110, 11.1
		token = ""
	}
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, tokenPath); ok {
		token, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	g.mu.Lock()
	a := g.open[digest(token)]
	g.mu.Unlock()
	if a == nil || only != nil && a != only {
		w.Header().Set("WWW-Authenticate", `Bearer realm="evalrun MCP gateway"`)
		g.refuse(w, r, http.StatusUnauthorized, "token",
			"this request bears no token of a client that is connected; use the URL and the Authorization header that you were given")
		return
	}
	if page := g.pages[path]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	name, err := url.PathUnescape(strings.TrimPrefix(path, pathPrefix))
	handler := a.handler(name)
	if err != nil || handler == nil || !strings.HasPrefix(path, pathPrefix) {
		g.refuse(w, r, http.StatusNotFound, "endpoint", "no such MCP server here; the path is "+pathPrefix+"NAME, with one of "+strings.Join(a.Names(), ", "))
		return
	}
	r.Header.Del("Authorization") // it was for us
	handler.ServeHTTP(w, r)
}
