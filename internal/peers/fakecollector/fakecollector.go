// Package fakecollector is an OpenTelemetry collector in memory. It takes OTLP over HTTP in
// Protocol Buffers and keeps what it got. Its user can make it fail.
package fakecollector

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is a collector. Its zero value has nothing and takes everything. It is safe for
// concurrent use.
type Collector struct {
	mu      sync.Mutex
	spans   []Span
	metrics []*metrics.Metric
	headers []http.Header
	status  int
	arrived chan struct{}
}

// Span is a span with the attributes of the resource that it belongs to.
type Span struct {
	*trace.Span
	Resource map[string]string
}

// Fail makes the collector answer with a status from now on; 0 makes it take everything.
func (c *Collector) Fail(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Spans returns the spans that have arrived, in their order.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Metrics returns the metrics that have arrived, in their order.
func (c *Collector) Metrics() []*metrics.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*metrics.Metric(nil), c.metrics...)
}

// Headers returns the headers of all requests, in their order.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]http.Header(nil), c.headers...)
}

// Arrived is closed at the next request, whatever its outcome.
func (c *Collector) Arrived() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrived == nil {
		c.arrived = make(chan struct{})
	}
	return c.arrived
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := read(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header.Clone())
	if c.arrived != nil {
		close(c.arrived)
		c.arrived = nil
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var answer proto.Message
	switch r.URL.Path {
	case "/v1/traces":
		answer, err = c.takeTraces(body)
	case "/v1/metrics":
		answer, err = c.takeMetrics(body)
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	text, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(text)
}

func read(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func (c *Collector) takeTraces(body []byte) (proto.Message, error) {
	var request collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	for _, rs := range request.ResourceSpans {
		resource := map[string]string{}
		for _, a := range rs.Resource.GetAttributes() {
			resource[a.Key] = a.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, Span{s, resource})
			}
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

func (c *Collector) takeMetrics(body []byte) (proto.Message, error) {
	var request collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	for _, rm := range request.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			c.metrics = append(c.metrics, sm.Metrics...)
		}
	}
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}
