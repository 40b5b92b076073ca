package web

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

// Options are the dependencies of the pages.
type Options struct {
	Service *service.Service
	// Draining is closed when nobody may wait any more.
	Draining <-chan struct{}
	// About notes the object of a request for the audit log; nil drops it.
	About func(r *http.Request, object string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log receives errors; nil drops them.
	Log *slog.Logger
}

// site is the part of a store that all pages share. It knows no page.
type site struct {
	o         Options
	overviews overviews
	streams   streams
	// origins caches where runs were started, which never changes.
	origins remembered[service.Origin]
}

func newSite(o Options) *site {
	p := &site{o: o, overviews: newOverviews(o.Service), streams: streams{draining: o.Draining}}
	p.streams.runs.Most, p.streams.inboxes.Most = maxStreams, maxStreams
	p.origins.most = maxStandings
	return p
}
