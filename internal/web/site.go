package web

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

// Options are what the pages need.
type Options struct {
	Service *service.Service
	// Draining is closed when nobody is to wait any more.
	Draining <-chan struct{}
	// About notes what a request is about, for the audit log; nil drops it.
	About func(r *http.Request, object string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets what goes wrong; nil drops it.
	Log *slog.Logger
}

// site is what all pages have of a store. It knows no page.
type site struct {
	o         Options
	overviews overviews
	streams   streams
	// origins say where runs were started, which never changes.
	origins remembered[service.Origin]
}

func newSite(o Options) *site {
	p := &site{o: o, overviews: newOverviews(o.Service), streams: streams{draining: o.Draining}}
	p.streams.runs.Most, p.streams.inboxes.Most = maxStreams, maxStreams
	p.origins.most = maxStandings
	return p
}
