package evalset

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
)

// These are the defaults of an eval set.
const (
	defaultEvaluatorTimeout = 5 * time.Minute
	defaultSuspensions      = 100
	defaultOutputBytes      = 16 << 20
	defaultBackoff          = time.Second
	defaultMaxBackoff       = time.Minute
)

func (l *loader) agents(f *input.Fields, set *eval.Set) {
	if n := f.Get("agent"); n != nil && n.Kind != input.Null {
		set.Agents = append(set.Agents, n)
		if f.Has("agents") {
			l.Errorf(n, "expected either agent or agents, got both")
		}
	}
	if n := f.Optional("agents", input.Array); n != nil {
		set.Agents = append(set.Agents, n.Items...)
		if len(n.Items) == 0 {
			l.Errorf(n, "expected at least one agent")
		}
	}
	for _, n := range set.Agents {
		if n.Kind != input.String && n.Kind != input.Object || n.Kind == input.String && n.Text == "" {
			l.Errorf(n, "expected an agent's name or an object, got %s", n.Kind)
		}
	}
}

// tasks checks the globs; package tasks expands them.
func (l *loader) tasks(f *input.Fields) {
	n := f.Get("tasks")
	if n == nil {
		return
	}
	for _, item := range n.Items {
		if _, err := filepath.Match(item.Text, ""); item.Kind == input.String && (err != nil || item.Text == "") {
			l.Errorf(item, `expected a glob of task directories such as "tasks/*", got %q`, item.Text)
		}
	}
}

func (l *loader) epochs(f *input.Fields, set *eval.Set) {
	const most = 10_000
	set.Epochs, set.Reduce = 1, eval.ReduceMean
	n := f.Get("epochs")
	switch {
	case n == nil || n.Kind == input.Null:
	case n.Kind == input.Object:
		e := l.Object(n)
		set.Epochs = e.Int("count", 1, 1, most)
		set.Reduce = eval.Reducer(e.Enum("reduce", string(eval.ReduceMean), string(eval.ReduceMean),
			string(eval.ReduceAtLeastOne), string(eval.ReduceAll)))
		e.Done()
	case n.Kind == input.Number:
		set.Epochs = f.Int("epochs", 1, 1, most)
	default:
		l.Errorf(n, `expected a whole number or an object such as {"count": 3, "reduce": "mean"}, got %s`, n.Kind)
	}
}

func (l *loader) limits(f *input.Fields, set *eval.Set) {
	set.Limits = eval.Limits{EvaluatorTimeout: defaultEvaluatorTimeout, Suspensions: defaultSuspensions,
		OutputBytes: defaultOutputBytes}
	n := f.Optional("limits", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Limits = eval.Limits{
		Timeout:          o.Duration("timeout", 0),
		SegmentTimeout:   o.Duration("segmentTimeout", 0),
		SuspendTimeout:   o.Duration("suspendTimeout", 0),
		ScoreTimeout:     o.Duration("scoreTimeout", 0),
		EvaluatorTimeout: o.Duration("evaluatorTimeout", defaultEvaluatorTimeout),
		SoftWait:         o.Duration("softWait", 0),
		Suspensions:      o.Int("suspensions", defaultSuspensions, 0, 1_000_000),
		OutputBytes:      int64(o.Int("outputBytes", defaultOutputBytes, 1, 1<<30)),
		Tokens:           int64(o.Int("tokens", 0, 1, 1e15)),
		Cost:             o.Float("cost", 0, 0, eval.MaxPrice),
	}
	if cost := o.Get("cost"); o.Has("cost") && cost.Kind == input.Number {
		switch {
		case set.Limits.Cost == 0:
			l.Errorf(cost, "expected more than 0 US dollars")
		case len(set.Prices) == 0:
			l.Errorf(cost, "a limit of cost needs prices of the models: %s",
				`"prices": {"gpt-5-mini": {"input": 0.25, "cachedInput": 0.025, "output": 2}}`)
		}
	}
	o.Done()
}

func (l *loader) retry(f *input.Fields, set *eval.Set) {
	set.Retry = eval.Retry{Backoff: defaultBackoff, MaxBackoff: defaultMaxBackoff}
	n := f.Optional("retry", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Retry = eval.Retry{
		Max:        o.Int("max", 0, 0, 1000),
		On:         o.Strings("on"),
		Backoff:    o.Duration("backoff", defaultBackoff),
		MaxBackoff: o.Duration("maxBackoff", defaultMaxBackoff),
	}
	if set.Retry.MaxBackoff < set.Retry.Backoff {
		l.Errorf(n, "maxBackoff (%s) is less than backoff (%s)", set.Retry.MaxBackoff, set.Retry.Backoff)
	}
	if set.Retry.Max > 0 && len(set.Retry.On) == 0 {
		l.Warnf(n, `retry.on is empty, so that nothing is repeated; expected fault categories, or "*" for every one`)
	}
	if limits := set.Limits; set.Retry.Max > 0 && slices.Contains(set.Retry.On, "timeout") && limits.Timeout > 0 &&
		(limits.SegmentTimeout == 0 || limits.SegmentTimeout >= limits.Timeout) {
		l.Warnf(o.Get("on"), "timeout is never repeated here: limits.timeout (%s) is for all attempts together, "+
			"and nothing is left of it then; "+
			"limits.segmentTimeout is the limit of one attempt", limits.Timeout)
	}
	o.Done()
}

// faults reads the owners of some categories of faults. The package that knows the categories
// checks them.
func (l *loader) faults(f *input.Fields, set *eval.Set) {
	n := f.Optional("faults", input.Object)
	if n == nil {
		return
	}
	o := l.Object(n)
	set.Faults = map[string]string{}
	for _, m := range n.Members {
		if m.Value.Kind == input.Null {
			l.Errorf(m.Value, "expected agent or environment, got null")
		}
		set.Faults[m.Key] = o.Enum(m.Key, "environment", "agent", "environment")
	}
	o.Done()
}
