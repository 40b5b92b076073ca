package runner

import (
	"context"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/telemetry"
	"github.com/evalrun/evalrun/internal/telemetry/otlp"
	"github.com/evalrun/evalrun/schemas"
)

// Telemetry is the collector of the traces and metrics of runs.
type Telemetry struct {
	endpoint otlp.Endpoint
	origin   telemetry.Origin
	content  bool
}

// contentVariable is the variable by which the instrumentations of OpenTelemetry are asked for
// inputs and outputs.
const contentVariable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

// ParseTelemetry reads the URL of an OpenTelemetry collector that takes OTLP over HTTP; "env" is
// the one of OTEL_EXPORTER_OTLP_ENDPOINT. Everything else comes from the variables of
// OpenTelemetry. With content, inputs and outputs are sent too.
func ParseTelemetry(endpoint string, content bool, lookup func(string) (string, bool)) (*Telemetry, error) {
	t := &Telemetry{content: content}
	var err error
	if t.endpoint, err = otlp.ParseEndpoint(endpoint, lookup); err != nil {
		return nil, err
	}
	t.origin.Service, _ = lookup("OTEL_SERVICE_NAME")
	t.origin.Attributes, _ = lookup("OTEL_RESOURCE_ATTRIBUTES")
	if text, _ := lookup(contentVariable); text == "true" || text == "span_only" || text == "span_and_event" {
		t.content = true
	}
	return t, nil
}

// exporting returns w with an exporter, if there is telemetry. It sends the events of a run, or if
// runID is empty of all runs that are not final, including earlier events. finish sends the rest,
// within a few seconds.
func (w work) exporting(ctx context.Context, runID string) (with work, finish func()) {
	t := w.o.Telemetry
	if t == nil {
		return w, func() {}
	}
	origin := t.origin
	origin.Version = w.s.opts.Version
	client := otlp.NewClient(t.endpoint, "evalrun/"+origin.Version, time.Now)
	runs := plannedRuns{s: w.s, v: w.o.Variables, known: map[string]telemetry.Run{}}
	w.exporter = telemetry.Start(telemetry.Options{Client: client, Store: w.s.st, Origin: origin, Content: t.content,
		LeftOver: runID == "", Planned: runs.get, Head: runs.head, Notice: func(text string) { w.o.notice("%s", text) }})
	if runID != "" {
		w.exporter.Changed(runID)
	} else if open, err := w.s.st.OpenRuns(ctx); err == nil {
		// Otherwise the store does not work, which ends the work by itself.
		for id := range open {
			w.exporter.Changed(id)
		}
	}
	return w, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		w.exporter.Close(ctx)
	}
}

// plannedRuns caches the plans and redactors of the runs that are being sent.
type plannedRuns struct {
	s *Store
	v Variables

	mu    sync.Mutex
	known map[string]telemetry.Run
}

// maxKnown is how many plans are kept.
const maxKnown = 16

func (r *plannedRuns) get(ctx context.Context, runID string) (telemetry.Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run, ok := r.known[runID]; ok {
		return run, nil
	}
	p, err := readPlanned(ctx, r.s.st, runID, r.v)
	if err != nil {
		return telemetry.Run{}, err
	}
	if len(r.known) == maxKnown {
		clear(r.known)
	}
	r.known[runID] = telemetry.Run{Plan: p.plan, Redact: p.red}
	return r.known[runID], nil
}

// head returns the head of a run's report.
func (r *plannedRuns) head(ctx context.Context, runID string) (head schemas.Head, err error) {
	run, err := r.get(ctx, runID)
	if err != nil {
		return head, err
	}
	err = report.FromStore(ctx, r.s.st, runID, run.Redact, func(r *report.Report) error {
		head = r.Head
		return nil
	})
	return head, err
}
