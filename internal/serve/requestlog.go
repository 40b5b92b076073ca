package serve

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/evalrun/evalrun/internal/webhook"
)

// maxLoggedPath is how much of a path is logged.
const maxLoggedPath = 200

// tokenPattern matches texts that look like a token of ours.
var tokenPattern = regexp.MustCompile(`evr_[A-Za-z0-9_]+`)

// loggedPath is the path of a request without its secrets: tokens, webhooks, and the query.
func loggedPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	switch {
	case strings.HasPrefix(path, webhook.Path):
		path = webhook.Path + "…"
	case strings.HasPrefix(path, tokenPath):
		path = tokenPath + "…"
	case len(path) > maxLoggedPath:
		path = strings.ToValidUTF8(path[:maxLoggedPath], "") + "…"
	}
	return tokenPattern.ReplaceAllString(path, "evr_…")
}

// logRequest writes the line of an answered request. Health checks are for --log-level debug.
func (g *guard) logRequest(x *exchange, r *http.Request, route Route, began time.Time) {
	level := slog.LevelInfo
	if strings.HasSuffix(route.Pattern, "/healthz") || strings.HasSuffix(route.Pattern, "/readyz") {
		level = slog.LevelDebug
	}
	g.o.Log.Log(r.Context(), level, "request", "method", r.Method, "path", loggedPath(r), "status", x.status,
		"ms", g.o.Now().Sub(began).Milliseconds(), "token", x.token, "remote", x.remote)
}

// Limits on lines about failed authentication: so many a second of all addresses, and so many at
// once.
const (
	failedLines     = 1
	failedLineBurst = 20
)

// failures is the log of failed authentication. Guessing cannot fill it: lines above the limits are
// only counted, and the next line has their number.
type failures struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	lines   *rate.Limiter
	skipped int
}

func newFailures(o *Options) *failures {
	return &failures{log: o.Log, now: o.Now, lines: rate.NewLimiter(failedLines, failedLineBurst)}
}

// note logs why a request was refused, unless there were too many.
func (f *failures) note(r *http.Request, address, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.lines.AllowN(f.now(), 1) {
		f.skipped++
		return
	}
	f.log.Warn("failed authentication", "reason", reason, "method", r.Method, "path", loggedPath(r), "remote", address,
		"skipped", f.skipped)
	f.skipped = 0
}
