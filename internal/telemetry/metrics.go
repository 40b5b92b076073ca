package telemetry

import (
	"context"
	"errors"
	"fmt"
	"time"

	collectormetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/telemetry/otlp"
	"github.com/evalrun/evalrun/schemas"
)

// sendMetrics sends the current state of a run. It reads all metrics from the store, so that it
// does not matter which process sends them.
//
// Many collectors take only traces. A collector that refuses metrics gets no more of them.
func (e *Exporter) sendMetrics(ctx context.Context, runID string) error {
	if e.noMetrics {
		return nil
	}
	run, err := e.o.Store.Run(ctx, runID)
	if err != nil {
		return err
	}
	m := newGauges(run)
	m.counts(run.Counts)
	if run.Final() {
		head, err := e.o.Head(ctx, runID)
		if err != nil {
			return err
		}
		m.verdict(head)
	}
	err = e.o.Client.Metrics(ctx, &collectormetrics.ExportMetricsServiceRequest{
		ResourceMetrics: []*metrics.ResourceMetrics{{
			Resource: e.o.Origin.resource(), ScopeMetrics: []*metrics.ScopeMetrics{{Scope: e.o.Origin.scope(), Metrics: m.all}},
		}}})
	if refused := (*otlp.Refused)(nil); errors.As(err, &refused) {
		e.noMetrics = true
		e.o.Notice(fmt.Sprintf("--otlp: %s takes no metrics: %v; it gets traces alone", e.name(), err))
		return nil
	}
	if err != nil {
		return e.unreachable(err)
	}
	return nil
}

// gauges are metrics of one run at one time.
type gauges struct {
	run  store.Run
	now  uint64
	all  []*metrics.Metric
	last *metrics.Gauge
}

func newGauges(run store.Run) *gauges { return &gauges{run: run, now: nanos(time.Now())} }

// begin begins a metric, to which points are added.
func (g *gauges) begin(name, unit, description string) {
	g.last = &metrics.Gauge{}
	g.all = append(g.all, &metrics.Metric{Name: name, Unit: unit, Description: description,
		Data: &metrics.Metric_Gauge{Gauge: g.last}})
}

// point adds a value with an attribute. An empty key adds no attribute.
func (g *gauges) point(key, value string, number *metrics.NumberDataPoint) {
	var a attributes
	a.text("evalrun.run.id", g.run.ID)
	a.text("evalrun.evaluation_set.id", g.run.EvaluationSetID)
	if key != "" {
		a.text(key, value)
	}
	number.Attributes, number.TimeUnixNano = a, g.now
	g.last.DataPoints = append(g.last.DataPoints, number)
}

func whole(n int64) *metrics.NumberDataPoint {
	return &metrics.NumberDataPoint{Value: &metrics.NumberDataPoint_AsInt{AsInt: n}}
}

func real(f float64) *metrics.NumberDataPoint {
	return &metrics.NumberDataPoint{Value: &metrics.NumberDataPoint_AsDouble{AsDouble: f}}
}

func (g *gauges) counts(c store.Counts) {
	g.begin("evalrun.rollouts", "{rollout}", "Rollouts of a run by state")
	for _, one := range []struct {
		state schemas.State
		n     int
	}{
		{schemas.StatePending, c.Pending}, {schemas.StateRunning, c.Running}, {schemas.StateSuspended, c.Suspended},
		{schemas.StateEvaluating, c.Evaluating}, {schemas.StateScoring, c.Scoring},
		{schemas.StateCompleted, c.Completed}, {schemas.StateFaulted, c.Faulted}, {schemas.StateCancelled, c.Cancelled},
	} {
		g.point("evalrun.state", string(one.state), whole(int64(one.n)))
	}
}

// verdict adds the metrics of a final run: the score, and the use of models, by agent.
func (g *gauges) verdict(h schemas.Head) {
	if h.Statistics == nil {
		return
	}
	agents := h.Statistics.PerAgent()
	name := func(i int) string {
		if agents[i].Agent == "" && len(h.Agents) == 1 {
			return h.Agents[0].Name
		}
		return agents[i].Agent
	}
	g.begin("evalrun.score", "1", "Mean score of a run; what its agent failed at counts as 0")
	for i, a := range agents {
		if a.Score.Mean != nil {
			g.point("gen_ai.agent.name", name(i), real(*a.Score.Mean))
		}
	}
	g.dropEmpty()
	g.begin("evalrun.tokens.input", "{token}", "Input tokens that the agents of a run have used")
	for i, a := range agents {
		if a.Usage != nil {
			g.point("gen_ai.agent.name", name(i), whole(a.Usage.Total.InputTokens))
		}
	}
	g.dropEmpty()
	g.begin("evalrun.tokens.output", "{token}", "Output tokens that the agents of a run have used")
	for i, a := range agents {
		if a.Usage != nil {
			g.point("gen_ai.agent.name", name(i), whole(a.Usage.Total.OutputTokens))
		}
	}
	g.dropEmpty()
	g.begin("evalrun.cost", "{USD}", "What the agents of a run have cost, if that is known of all")
	for i, a := range agents {
		if a.Usage != nil && a.Usage.Total.CostKnown() {
			g.point("gen_ai.agent.name", name(i), real(*a.Usage.Total.Cost))
		}
	}
	g.dropEmpty()
}

// dropEmpty removes a metric without points, which OTLP does not allow.
func (g *gauges) dropEmpty() {
	if len(g.last.DataPoints) == 0 {
		g.all = g.all[:len(g.all)-1]
	}
}
