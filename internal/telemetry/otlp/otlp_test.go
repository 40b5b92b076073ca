package otlp

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collectortrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/internal/peers/fakecollector"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestParseEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		text            string
		env             map[string]string
		traces, metrics string
	}{
		"a URL":           {"http://c:4318", nil, "http://c:4318/v1/traces", "http://c:4318/v1/metrics"},
		"with a path":     {"https://c/otlp/", nil, "https://c/otlp/v1/traces", "https://c/otlp/v1/metrics"},
		"over a variable": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other"}, "http://c/v1/traces", "http://c/v1/metrics"},
		"a variable":      {"env", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces", "http://c:4318/v1/metrics"},
		"of one signal":   {"env", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, "http://c/t", ""},
		"of both":         {"env", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/x"}, "http://c/v1/traces", "http://m/x"},
	} {
		if e, err := ParseEndpoint(c.text, lookup(c.env)); err != nil || e.Traces != c.traces || e.Metrics != c.metrics {
			t.Errorf("%s: %s, %s, %v", name, e.Traces, e.Metrics, err)
		}
	}
	for name, c := range map[string]struct {
		text string
		env  map[string]string
		want string
	}{
		"no URL":      {"localhost:4318", nil, "expected the URL of a collector"},
		"nothing set": {"env", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, "OTEL_EXPORTER_OTLP_ENDPOINT is not set"},
		"grpc":        {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, which is what evalrun speaks, got "grpc"`},
		"timeout":     {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "10s"}, "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT: expected milliseconds"},
		"compression": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}, "expected gzip or none"},
		"header":      {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "open-sesame"}, "OTEL_EXPORTER_OTLP_HEADERS: expected headers"},
		"certificate": {"http://c", map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, "OTEL_EXPORTER_OTLP_CERTIFICATE: open /nowhere"},
	} {
		_, err := ParseEndpoint(c.text, lookup(c.env))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func request() *collectortrace.ExportTraceServiceRequest {
	return &collectortrace.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{{Name: "one"}}}}}}}
}

func TestHeadersAndCompression(t *testing.T) {
	collector := &fakecollector.Collector{}
	server := httptest.NewServer(collector)
	defer server.Close()
	e, err := ParseEndpoint(server.URL, lookup(map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "x-a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=Bearer%20t, x-b=2", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(e, "evalrun/1", time.Now).Traces(t.Context(), request()); err != nil {
		t.Fatal(err)
	}
	h := collector.Headers()[0]
	if h.Get("Authorization") != "Bearer t" || h.Get("X-B") != "2" || h.Get("X-A") != "" || h.Get("User-Agent") != "evalrun/1" || h.Get("Content-Encoding") != "gzip" {
		t.Errorf("the request has %v", h)
	}
	if spans := collector.Spans(); len(spans) != 1 || spans[0].Name != "one" {
		t.Errorf("the collector has %v", spans)
	}
}

func TestWhatAnswersMean(t *testing.T) {
	collector := &fakecollector.Collector{}
	server := httptest.NewServer(collector)
	e, err := ParseEndpoint(server.URL, lookup(map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "5000"}))
	if err != nil || e.traces.timeout != 5*time.Second {
		t.Fatal(e.traces.timeout, err)
	}
	c := NewClient(e, "", time.Now)
	defer c.Close()
	for status, want := range map[int]string{0: "<nil>", 429: "*otlp.Later", 503: "*otlp.Later", 400: "*otlp.Refused", 404: "*otlp.Refused", 302: "*otlp.Refused"} {
		collector.Fail(status)
		_, err := c.Traces(t.Context(), request())
		if got := kind(err); got != want {
			t.Errorf("%d is %s, not %s", status, got, want)
		}
	}
	server.Close()
	if _, err := c.Traces(t.Context(), request()); err == nil || strings.Contains(err.Error(), "/v1/traces") {
		t.Errorf("without a server: %v", err)
	}
}

func kind(err error) string {
	var later *Later
	var refused *Refused
	switch {
	case errors.As(err, &later):
		return "*otlp.Later"
	case errors.As(err, &refused):
		return "*otlp.Refused"
	}
	return fmt.Sprint(err)
}
