package serve

import (
	"context"
	"net/http"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve/hooks"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/serve/mcpserver"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/internal/webhook"
)

// Route is one entry of the table of routes.
type Route struct {
	// Pattern is a pattern of http.ServeMux, with its method unless the handler takes several.
	Pattern string
	// Scope is the scope that a caller needs. If it depends on the request it is empty, and the
	// handler asks access.From.
	Scope access.Scope
	// Open says that no token is needed: the URL is the credential, or there is nothing to hide.
	Open bool
	// Page says that the answer is for a person at a browser, who comes with a cookie.
	Page bool
	// Mesh says that clients of MCP Mesh call it. They cannot send a header with a token: it may be
	// the password of Basic authentication, or part of the path.
	Mesh bool
	// Audit names the action in the lines of the audit log; empty for requests that only read.
	Audit string
	// Refuse, if not nil, answers a request that does not reach the handler, in the shape that its
	// callers know. Otherwise they get a Problem.
	Refuse  func(w http.ResponseWriter, status int, detail string)
	Handler http.Handler
}

// routes lists everything that is served.
func (s *Server) routes() ([]Route, error) {
	evalSets, runs := &evalSetsAPI{s.o.Service}, &runsAPI{s.o.Service}
	rollouts, triggers := &rolloutsAPI{s.o.Service}, &triggersAPI{s.o.Service}
	events := &eventsAPI{service: s.o.Service, draining: s.draining, streams: &s.streams}
	webhooks, err := hooks.New(hooks.Options{Service: s.o.Service, About: about, Unknown: s.rates.guess, Logger: s.o.Log})
	if err != nil {
		return nil, err
	}
	all := []Route{
		{Pattern: "GET /healthz", Open: true, Handler: http.HandlerFunc(healthy)},
		{Pattern: "GET /readyz", Open: true, Handler: handle(s.ready)},
		{Pattern: "GET /metrics", Scope: access.Read, Handler: s.metrics.handler()},
		{Pattern: "GET /v1/openapi.json", Scope: access.Read, Handler: http.HandlerFunc(openAPI)},
		{Pattern: "GET /v1/eval-sets", Scope: access.Read, Handler: handle(evalSets.list)},
		{Pattern: "POST /v1/runs", Scope: access.Run, Audit: "run", Handler: handle(runs.create)},
		{Pattern: "GET /v1/runs", Scope: access.Read, Handler: handle(runs.list)},
		{Pattern: "GET /v1/runs/{runId}", Scope: access.Read, Handler: handle(runs.get)},
		{Pattern: "POST /v1/runs/{runId}/cancel", Scope: access.Run, Audit: "cancel", Handler: handle(runs.cancel)},
		{Pattern: "GET /v1/runs/{runId}/results", Scope: access.Read, Handler: handle(runs.results)},
		{Pattern: "GET /v1/runs/{runId}/events", Scope: access.Read, Handler: handle(events.list)},
		{Pattern: "GET /v1/runs/{runId}/rollouts", Scope: access.Read, Handler: handle(rollouts.list)},
		{Pattern: "GET /v1/rollouts/{rolloutId}", Scope: access.Read, Handler: handle(rollouts.get)},
		{Pattern: "GET /v1/triggers", Scope: access.Read, Handler: handle(triggers.list)},
		{Pattern: "GET /v1/triggers/{triggerId}", Scope: access.Read, Handler: handle(triggers.get)},
		{Pattern: "POST /v1/triggers/{triggerId}/deliver", Scope: access.Deliver, Audit: "deliver",
			Handler: handle(triggers.deliver)},
		{Pattern: "POST /v1/triggers/{triggerId}/fail", Scope: access.Deliver, Audit: "deliver",
			Handler: handle(triggers.fail)},
		{Pattern: "POST /v1/triggers/{triggerId}/cancel", Scope: access.Deliver, Audit: "deliver",
			Handler: handle(triggers.cancel)},
		{Pattern: "POST /v1/tick", Scope: access.Run, Audit: "tick", Handler: handle((&tickAPI{s.o.Tick, s.o.Now}).post)},
		{Pattern: webhook.Path, Open: true, Audit: "deliver", Handler: webhooks},
	}
	h := jobs.New(jobs.Options{Service: s.o.Service, Grace: jobs.DefaultGrace, Draining: s.draining, About: about,
		Changed: s.changed, Now: s.o.Now, Log: s.o.Log})
	s.mcp = mcpserver.New(mcpserver.Options{Service: s.o.Service, Jobs: h, Changed: s.changed, Now: s.o.Now, Log: s.o.Log})
	all = append(all, Route{Pattern: "/mcp", Handler: s.mcp})
	all = append(all, s.pageRoutes()...)
	return append(all, jobRoutes(h)...), nil
}

// changed records one of several changes that a request may make.
func (s *Server) changed(ctx context.Context, action, object string) {
	if s.o.Audit == nil {
		return
	}
	who := access.From(ctx)
	line := AuditLine{Time: s.o.Now().UTC(), Action: action, Object: object, Token: who.ID, Name: who.Name,
		Remote: remote(ctx), Status: http.StatusOK}
	if err := s.o.Audit.Write(line); err != nil {
		s.o.Log.Error("the audit log could not be written", "error", err)
	}
}

// jobRoutes are the routes of the job interface.
func jobRoutes(h http.Handler) (out []Route) {
	for _, e := range jobs.Endpoints {
		out = append(out,
			Route{Pattern: e.Pattern, Scope: e.Scope, Mesh: true, Audit: e.Audit, Refuse: jobs.Refuse, Handler: h})
	}
	return out
}

// pageRoutes are the pages, and the ways into them.
func (s *Server) pageRoutes() []Route {
	out := []Route{
		{Pattern: "GET /open", Open: true, Page: true, Refuse: web.Refuse, Handler: handle(s.sessions.open)},
		{Pattern: "POST /login", Open: true, Page: true, Refuse: web.Refuse, Handler: handle(s.sessions.login)},
		{Pattern: "POST /logout", Open: true, Page: true, Refuse: web.Refuse, Handler: http.HandlerFunc(s.sessions.logout)},
	}
	pages := web.New(web.Options{Service: s.o.Service, Draining: s.draining, About: about, Now: s.o.Now, Log: s.o.Log})
	for _, e := range pages.Endpoints() {
		out = append(out, Route{Pattern: e.Pattern, Scope: e.Scope, Open: e.Open, Page: true, Audit: e.Audit,
			Refuse: web.Refuse, Handler: e.Handler})
	}
	return out
}

// handle makes a handler of a function that returns an error if it failed before it answered. If a
// request's token was revoked meanwhile, the guard answers it.
func handle(f func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil && !revoked(r.Context()) {
			p := problemOf(err)
			if p.Status == http.StatusInternalServerError {
				failed(r, err)
			}
			p.write(w)
		}
	})
}
