package rollout

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types" // registers the types
	"github.com/evalrun/evalrun/internal/evalworker"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait/sources"
)

// Run holds what the rollouts of a run share. It is made from the run's plan.
type Run struct {
	Plan plans.Plan
	// Dir is the eval set's folder.
	Dir    string
	agents agents
	// outputs are those of earlier runs that this one takes; nil if it runs everything.
	outputs *takenOutputs
	// python runs evaluators that are code in Python.
	python *evalworker.Workers
	// Evaluators are in the order of the plan; the evaluator of the task's verifier is nil.
	Evaluators []eval.Evaluator
	Sources    *sources.Set
	// Judges ask models for verdicts; nil if no evaluator needs one.
	Judges *judge.Judges
	// Redact is nil if there are no secrets.
	Redact *redact.Redactor
}

// NewRun makes a run of a plan in the store of a folder. Its agents are made when they are needed.
func NewRun(plan plans.Plan, dir, storeDir string, o agent.Options, set *sources.Set, red *redact.Redactor) (*Run, error) {
	if red != nil {
		o.Redact = red.Writer
	}
	run := &Run{Plan: plan, Dir: dir, agents: agents{options: o}, Sources: set, Redact: red, python: evaluatorWorkers(plan)}
	run.outputs = newTakenOutputs(plan, dir, storeDir, o)
	var err error
	run.Evaluators, err = newEvaluators(plan)
	return run, err
}

// evaluatorWorkers makes the workers of evaluators. They are kept unless those of agents are not.
func evaluatorWorkers(plan plans.Plan) *evalworker.Workers {
	return evalworker.New(slices.ContainsFunc(plan.Agents, func(e agent.Entry) bool { return e.Fresh }))
}

func newEvaluators(plan plans.Plan) (out []eval.Evaluator, err error) {
	for _, def := range plan.Set.Evaluators {
		if def.Type == eval.TypeVerifier {
			out = append(out, nil) // see scoring.verify
			continue
		}
		e, err := kinds.All.New(def)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Close releases what the run keeps for its rollouts. Rollouts that are still in progress may go
// on.
func (run *Run) Close() error {
	run.Sources.Close()
	return errors.Join(run.agents.close(), run.python.Close())
}

// within resolves a path of the plan, which is relative to the eval set's folder.
func (r *Run) within(rel string) string {
	if rel = filepath.FromSlash(rel); filepath.IsAbs(rel) {
		return rel
	}
	return filepath.Join(r.Dir, rel)
}

// filter returns the redaction of the run; nil if there is none.
func (r *Run) filter() func(io.Writer) io.WriteCloser {
	if r.Redact == nil {
		return nil
	}
	return r.Redact.Writer
}

// agents holds the agents of a run. They are made when a segment needs them, and closed when the
// run is closed and no segment uses them.
type agents struct {
	options agent.Options

	mu     sync.Mutex
	byName map[string]agent.Agent
	// segments counts the segments that use the agents. closed says that the run is closed.
	segments int
	closed   bool
}

// acquire returns the agent of an entry for a segment. The segment releases it.
func (a *agents) acquire(e agent.Entry) (agent.Agent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, ok := a.byName[e.Name]
	if !ok {
		var err error
		if one, err = e.New(a.options); err != nil {
			return nil, err // the failure harms only the agent's own rollouts
		}
		if a.byName == nil {
			a.byName = map[string]agent.Agent{}
		}
		a.byName[e.Name] = one
	}
	a.segments++
	return one, nil
}

func (a *agents) release() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.segments--
	return a.closeUnused()
}

func (a *agents) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.closeUnused()
}

func (a *agents) closeUnused() (err error) {
	if !a.closed || a.segments > 0 {
		return nil
	}
	for _, one := range a.byName {
		err = errors.Join(err, one.Close())
	}
	clear(a.byName)
	return err
}
