// Package telemetry reports the events of runs to an OpenTelemetry collector: a trace for each
// rollout, and metrics for each run.
//
// A span is made from stored data, after its end has been stored, and its ids are
// derived from stored ids. The exporter of a run stores how far it has come, so that another
// process can continue. Spans that are sent twice after a crash have the same ids both times.
//
// [Exporter] sends. It never makes a run fail or wait: it reads the store in parallel to the work,
// and keeps no queue of its own.
package telemetry

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"

	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
)

// scopeName is the instrumentation scope of everything that is sent.
const scopeName = "github.com/evalrun/evalrun"

// Run is what the exporter knows of a run besides its rollouts.
type Run struct {
	Plan   plans.Plan
	Redact *redact.Redactor
}

// Origin describes the sender.
type Origin struct {
	// Version is evalrun's; empty means that of the build.
	Version string
	// Service and Attributes are OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
	Service, Attributes string
}

func (o Origin) version() string {
	if info, ok := debug.ReadBuildInfo(); ok && o.Version == "" {
		return info.Main.Version
	}
	return o.Version
}

// resource has the attributes of OTEL_RESOURCE_ATTRIBUTES. Of our own attributes they replace only
// the service's name.
func (o Origin) resource() *resource.Resource {
	out := attributes{}
	service := "evalrun"
	for pair := range strings.SplitSeq(o.Attributes, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !ok || key == "" {
			continue
		}
		if key == "service.name" {
			service = value
			continue
		}
		out.text(key, value)
	}
	if o.Service != "" {
		service = o.Service
	}
	out.text("service.name", service)
	out.text("service.version", o.version())
	return &resource.Resource{Attributes: out}
}

func (o Origin) scope() *common.InstrumentationScope {
	return &common.InstrumentationScope{Name: scopeName, Version: o.version()}
}

// attributes are the attributes of a span, a metric or a resource. Empty values are left out.
type attributes []*common.KeyValue

// maxText is the most bytes of an attribute's text.
const maxText = 32 << 10

func (a *attributes) text(key, value string) {
	if value == "" {
		return
	}
	if len(value) > maxText {
		value = value[:maxText] + "…"
	}
	a.add(key, &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "\uFFFD")}})
}

func (a *attributes) count(key string, n int64) {
	a.add(key, &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}})
}

func (a *attributes) number(key string, f *float64) {
	if f != nil {
		a.add(key, &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: *f}})
	}
}

func (a *attributes) flag(key string, on bool) {
	if on {
		a.add(key, &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}})
	}
}

func (a *attributes) add(key string, value *common.AnyValue) {
	*a = append(*a, &common.KeyValue{Key: key, Value: value})
}

// json adds a value of any type. A value other than text, number or bool is sent as JSON text.
func (a *attributes) json(key string, value json.RawMessage) {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return
	}
	switch v := v.(type) {
	case nil:
	case string:
		a.text(key, v)
	case bool:
		a.add(key, &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}})
	case float64:
		if n := int64(v); float64(n) == v {
			a.count(key, n)
		} else {
			a.number(key, &v)
		}
	default:
		a.text(key, string(value))
	}
}

// firstLine returns the part of an error that is sent. The output of an agent or a job may follow
// in the next lines.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

// Planned returns what is known of a run besides its rollouts.
type Planned func(ctx context.Context, runID string) (Run, error)
