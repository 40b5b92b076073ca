package standalone

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/input"
)

// observer writes the log of requests and counts them, and warns of servers that are not there.
type observer struct {
	log     *slog.Logger // nil for none
	metrics *metrics
	warn    func(text string)

	mu sync.Mutex
	// missing has the servers that could not be reached when it was tried last. A person has been
	// told of each.
	missing map[string]bool
}

func newObserver(log *slog.Logger, m *metrics, warn func(text string)) *observer {
	return &observer{log: log, metrics: m, warn: warn, missing: map[string]bool{}}
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

// Connected implements gateway.Observer.
func (o *observer) Connected(server string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && !o.missing[server] {
		o.warn(err.Error())
	}
	o.missing[server] = err != nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func cut(text string) string { return text[:min(len(text), longestLogged)] }

// metrics are the numbers at /metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalrun_gateway_requests_total", Help: "MCP requests that have been answered.",
		}, []string{"endpoint", "method", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evalrun_gateway_request_duration_seconds", Help: "How long MCP requests took to answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"endpoint", "method"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalrun_gateway_refused_total", Help: "HTTP requests that were refused: for their token, host or endpoint.",
		}, []string{"reason"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.refused, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// of adds the numbers of an access, and of the tasks that run there.
func (m *metrics) of(a *gateway.Access, running func() int) {
	m.registry.MustRegister(sessionCollector{a}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "evalrun_gateway_running_tasks", Help: "MCP tasks that have not ended.",
	}, func() float64 { return float64(running()) }))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *metrics) served(s gateway.Served) {
	method := methodLabel(s.Method)
	m.requests.WithLabelValues(s.Endpoint, method, s.Outcome).Inc()
	m.seconds.WithLabelValues(s.Endpoint, method).Observe(s.Took.Seconds())
}

// methodLabel returns a method as a label. Clients may invent methods, and each must not have a
// series.
func methodLabel(method string) string {
	switch method {
	case "initialize", "server/discover", "ping", "tools/list", "tools/call",
		"prompts/list", "prompts/get", "resources/list", "resources/templates/list",
		"resources/read", "resources/subscribe", "resources/unsubscribe",
		"completion/complete", "logging/setLevel", "subscriptions/listen":
		return method
	}
	if task, ok := strings.CutPrefix(method, "tasks/"); ok {
		switch task {
		case "get", "list", "result", "cancel", "update":
			return method
		}
	}
	return "other"
}

// sessionCollector counts the sessions of each endpoint.
type sessionCollector struct{ access *gateway.Access }

var sessionsDesc = prometheus.NewDesc("evalrun_gateway_sessions",
	"Open sessions of clients from before 2026-07-28.", []string{"endpoint"}, nil)

// Describe implements prometheus.Collector.
func (sessionCollector) Describe(c chan<- *prometheus.Desc) { c <- sessionsDesc }

// Collect implements prometheus.Collector.
func (s sessionCollector) Collect(c chan<- prometheus.Metric) {
	for endpoint, n := range s.access.Sessions() {
		c <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), endpoint)
	}
}
