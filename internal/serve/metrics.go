package serve

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evalrun/evalrun/internal/sse"
	"github.com/evalrun/evalrun/internal/store"
)

// metrics are the metrics at /metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(st measured, streams *sse.Slots) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evalrun_http_requests_total",
			Help: "Requests that have been answered, by route and status; those that were refused before a route was found have none.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "evalrun_http_request_duration_seconds",
			Help:    "How long requests took, with the time that they waited for something to happen.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"route"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, backlogCollector{st}, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "evalrun_http_event_streams", Help: "Open streams of server-sent events.",
	}, func() float64 {
		return float64(streams.Taken())
	}), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// served counts an answer.
func (m *metrics) served(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// backlogCollector collects the open work in the store.
type backlogCollector struct{ st measured }

// measured is the part of a store that is measured.
type measured interface {
	store.Reader
	store.Limits
}

var (
	openRunsDesc = prometheus.NewDesc("evalrun_open_runs", "Runs that are not final.", nil, nil)
	rolloutsDesc = prometheus.NewDesc("evalrun_rollouts",
		"Rollouts that can be worked on now (runnable), after a backoff (delayed), when a limit has room (limited), by a process with other tags (unfit), or are being worked on (held).",
		[]string{"state"}, nil)
	queueDesc = prometheus.NewDesc("evalrun_queue_rollouts",
		"Rollouts by the tags of workers that they need: ready ones, those that a limit holds back, and held ones. Suspended ones are none of them.",
		[]string{"tags", "state"}, nil)
	queueAgeDesc = prometheus.NewDesc("evalrun_queue_oldest_seconds",
		"How long the first of the rollouts with these tags that is not held has been ready.", []string{"tags"}, nil)
	triggersDesc = prometheus.NewDesc("evalrun_due_triggers", "Triggers that are to be looked after now.", nil, nil)
)

// Describe implements prometheus.Collector.
func (backlogCollector) Describe(c chan<- *prometheus.Desc) {
	c <- openRunsDesc
	c <- rolloutsDesc
	c <- queueDesc
	c <- queueAgeDesc
	c <- triggersDesc
}

// Collect implements prometheus.Collector.
func (b backlogCollector) Collect(c chan<- prometheus.Metric) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	open, err := b.st.OpenRuns(ctx)
	if err != nil {
		c <- prometheus.NewInvalidMetric(openRunsDesc, err)
		return
	}
	left, err := b.st.Backlog(ctx, "")
	if err != nil {
		c <- prometheus.NewInvalidMetric(rolloutsDesc, err)
		return
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(openRunsDesc, len(open))
	gauge(rolloutsDesc, left.Runnable, "runnable")
	gauge(rolloutsDesc, left.Delayed, "delayed")
	gauge(rolloutsDesc, left.Held, "held")
	gauge(rolloutsDesc, left.Limited, "limited")
	gauge(rolloutsDesc, left.Unfit, "unfit")
	gauge(triggersDesc, left.Due)
	queues, err := b.st.Queues(ctx)
	if err != nil {
		c <- prometheus.NewInvalidMetric(queueDesc, err)
		return
	}
	for _, q := range queues {
		tags := strings.Join(q.Tags, ",")
		gauge(queueDesc, q.Ready, tags, "ready")
		gauge(queueDesc, q.Limited, tags, "limited")
		gauge(queueDesc, q.Held, tags, "held")
		if !q.Oldest.IsZero() {
			c <- prometheus.MustNewConstMetric(queueAgeDesc, prometheus.GaugeValue, time.Since(q.Oldest).Seconds(), tags)
		}
	}
}
