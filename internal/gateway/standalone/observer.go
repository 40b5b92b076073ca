package standalone

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/input"
)

// observer writes the log of requests and counts them.
type observer struct {
	log     *slog.Logger // nil for none
	metrics *metrics
}

// openLog opens the log of requests: a file to append to, or stderr for -. It returns nil if there
// is to be none.
func openLog(name string, stderr io.Writer) (*slog.Logger, func() error, error) {
	switch name {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return slog.New(slog.NewJSONHandler(stderr, nil)), func() error { return nil }, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		var reason *fs.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return nil, nil, input.Errorf("--request-log: %s: cannot be written: %w", name, err)
	}
	return slog.New(slog.NewJSONHandler(f, nil)), f.Close, nil
}

// longestLogged is how much of a text of a client is logged.
const longestLogged = 200

// Served implements gateway.Observer.
func (o *observer) Served(s gateway.Served) {
	o.metrics.served(s)
	if o.log == nil {
		return
	}
	attrs := []slog.Attr{slog.String("endpoint", s.Endpoint), slog.String("method", cut(s.Method)),
		slog.String("outcome", s.Outcome), slog.Float64("ms", milliseconds(s.Took))}
	for _, optional := range []struct{ key, value string }{{"name", s.Name},
		{"client", s.Client}, {"session", s.Session}, {"era", string(s.Era)}} {
		if optional.value != "" {
			attrs = append(attrs, slog.String(optional.key, cut(optional.value)))
		}
	}
	if s.Code != 0 {
		attrs = append(attrs, slog.Int64("code", s.Code))
	}
	o.log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}

// Refused implements gateway.Observer. The text that a request bore in place of a token is not
// logged, because it may be one.
func (o *observer) Refused(r gateway.Refused) {
	o.metrics.refused.WithLabelValues(r.Reason).Inc()
	if o.log != nil {
		o.log.LogAttrs(context.Background(), slog.LevelWarn, "refused",
			slog.Int("status", r.Status), slog.String("reason", r.Reason),
			slog.String("remote", r.Remote), slog.String("method", cut(r.Method)))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func cut(text string) string { return text[:min(len(text), longestLogged)] }
