package serve

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/evalrun/evalrun/internal/access"
)

// guard stands before every handler. It admits requests with the right host, origin, token and
// scope, and records what they did.
type guard struct {
	o       *Options
	mux     *http.ServeMux
	routes  map[string]Route
	hosts   *hosts
	origin  *http.CrossOriginProtection
	rates   *rates
	calls   *calls
	metrics *metrics
}

func newGuard(o *Options, q *rates, m *metrics, routes []Route) (*guard, error) {
	g := &guard{o: o, metrics: m, mux: http.NewServeMux(), routes: map[string]Route{}, hosts: newHosts(o.PublicURL),
		origin: http.NewCrossOriginProtection(), rates: q, calls: newCalls(o.Service.Tokens(), o.Now)}
	if u := o.PublicURL; u != nil {
		if err := g.origin.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			return nil, err
		}
	}
	for _, r := range routes {
		g.routes[r.Pattern] = r
		g.mux.Handle(r.Pattern, r.Handler)
	}
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: out, remote: r.RemoteAddr}
	r, inPath := withoutToken(r.WithContext(x.in(r.Context())))
	began := g.o.Now()
	h := x.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	control := http.NewResponseController(out)
	_ = control.SetWriteDeadline(g.o.Now().Add(maxWait + answerTimeout)) // only a test's writer has no deadlines
	_ = control.SetReadDeadline(g.o.Now().Add(g.o.BodyTimeout))
	body := &timedBody{http.MaxBytesReader(out, r.Body, maxBody), control}
	r.Body = body

	unrouted, pattern := g.mux.Handler(r)
	route, found := g.routes[pattern]
	defer func() {
		g.finish(x, r, route, recover())
		g.metrics.served(route.Pattern, x.status, g.o.Now().Sub(began))
		g.logRequest(x, r, route, began)
	}()
	if inPath != "" && !route.Mesh {
		route, found = Route{}, false // such a path reaches no other route
	}
	identity, refusal := g.admit(r, route, inPath)
	x.token = identity.ID
	if refusal != nil {
		g.refuse(x, route, refusal)
		return
	}
	x.identity = identity
	if !found {
		g.refuse(x, route, notFound(unrouted, r, h))
		return
	}
	if r.ContentLength == 0 {
		body.noDeadline()
	}
	ctx := access.With(r.Context(), identity)
	if route.Open || route.Audit != "" { // a change is quick, and must not be left half done
		g.mux.ServeHTTP(x, r.WithContext(ctx))
		return
	}
	ctx, done := g.calls.begin(ctx, identity.ID)
	defer done()
	g.mux.ServeHTTP(x, r.WithContext(ctx))
	if x.status == 0 && revoked(ctx) {
		g.refuse(x, route, invalidToken())
	}
}

func invalidToken() *Problem {
	return problem(http.StatusUnauthorized, "invalid-token",
		"the token is not valid: it was revoked or has expired, or it never was one")
}

// admit identifies the caller, or says why the request is refused.
func (g *guard) admit(r *http.Request, route Route, inPath string) (access.Identity, *Problem) {
	var nobody access.Identity
	if !g.hosts.allow(r.Host) {
		return nobody, problem(http.StatusMisdirectedRequest, "wrong-host",
			"this server is not called that; reach it at its own address or its public URL")
	}
	if g.foreign(r) {
		return nobody, problem(http.StatusForbidden, "wrong-origin", "a page of another origin must not call this server")
	}
	if route.Open {
		return nobody, nil
	}
	token, ok := tokenOf(r, route, inPath)
	if !ok && route.Page {
		if token, ok = cookieToken(r); !ok { // a browser that only opens a page is no attack, and is asked for a token
			return nobody, problem(http.StatusUnauthorized, "no-token",
				"Give a token to see the pages of this server, or open the link that it printed when it started.")
		}
	}
	if !ok {
		return nobody, g.rates.failed(r, problem(http.StatusUnauthorized, "no-token",
			"expected the header Authorization: Bearer TOKEN; evalrun token new makes one"))
	}
	identity, err := access.Check(r.Context(), g.o.Service.Tokens(), token, g.o.Now())
	switch {
	case errors.Is(err, access.ErrInvalid):
		return nobody, g.rates.failed(r, invalidToken())
	case err != nil:
		failed(r, err)
		return nobody, problemOf(err)
	case !g.rates.allow(identity.ID):
		return identity, problem(http.StatusTooManyRequests, "too-many-requests",
			"this token sends more requests than it may; try again in a second")
	case route.Scope != "" && !identity.May(route.Scope):
		return identity, problem(http.StatusForbidden, "missing-scope",
			fmt.Sprintf("the token lacks the scope %s", route.Scope))
	}
	return identity, nil
}

// foreign reports whether a page of another origin sends a request. Links to our pages may be
// anywhere: a browser that follows one sends no origin.
func (g *guard) foreign(r *http.Request) bool {
	if r.Header.Get("Origin") != "" {
		post := *r // a request with an origin counts as a change, whatever its method
		post.Method = http.MethodPost
		r = &post
	}
	return g.origin.Check(r) != nil
}

// refuse answers a request that goes no further.
func (g *guard) refuse(w http.ResponseWriter, route Route, p *Problem) {
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="evalrun"`)
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	if route.Refuse != nil {
		route.Refuse(w, p.Status, p.Detail)
		return
	}
	p.write(w)
}

// notFound says whether the path or the method has no handler. h is the multiplexer's own handler
// for the request.
func notFound(h http.Handler, r *http.Request, header http.Header) *Problem {
	probe := &statusOnly{header: http.Header{}}
	h.ServeHTTP(probe, r)
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		header.Set("Allow", allow)
		return problem(http.StatusMethodNotAllowed, "method-not-allowed", "expected the method "+allow)
	}
	return problem(http.StatusNotFound, "not-found", "there is nothing at this path")
}

// statusOnly keeps the status of a response.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(p []byte) (int, error) { return len(p), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// finish records what was done, and turns a panic into an answer.
func (g *guard) finish(x *exchange, r *http.Request, route Route, panicked any) {
	if panicked != nil && panicked != http.ErrAbortHandler { //nolint:errorlint // a value of panic
		x.failure = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		if x.status == 0 {
			g.refuse(x, route, problem(http.StatusInternalServerError, "internal", "evalrun itself failed; its log says why"))
		}
	}
	if x.failure != nil && r.Context().Err() == nil {
		g.o.Log.Error("a request failed", "method", r.Method, "route", route.Pattern, "error", x.failure)
	}
	// A caller without a token changes nothing, and must not fill the disk.
	if route.Audit != "" && g.o.Audit != nil && (x.identity.ID != "" || x.object != "") {
		if err := g.o.Audit.write(g.o.Now(), x, route.Audit); err != nil {
			g.o.Log.Error("the audit log could not be written", "error", err)
		}
	}
	if panicked == http.ErrAbortHandler { //nolint:errorlint // a value of panic
		panic(panicked)
	}
}
