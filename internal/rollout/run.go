package rollout

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types" // makes them known
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait/sources"
)

// Run is what the rollouts of a run share, made from its plan.
type Run struct {
	Plan plans.Plan
	// Dir is the eval set's folder.
	Dir string
	// Agents are the agents by name. Those that cannot be made are missing; their rollouts fault.
	Agents    map[string]agent.Agent
	agentErrs map[string]error
	// Evaluators stand in the order of the plan; that of the task's verifier is nil.
	Evaluators []eval.Evaluator
	Sources    *sources.Set
	// Judges ask models for verdicts; nil if no evaluator needs one.
	Judges *judge.Judges
	// Redact is nil if there are no secrets.
	Redact *redact.Redactor
}

// NewRun makes the agents and evaluators of a plan.
func NewRun(plan plans.Plan, dir string, agents agent.Options, set *sources.Set, red *redact.Redactor) (*Run, error) {
	run := &Run{Plan: plan, Dir: dir, Agents: map[string]agent.Agent{}, agentErrs: map[string]error{}, Sources: set, Redact: red}
	if red != nil {
		agents.Redact = red.Writer
	}
	for _, e := range plan.Agents {
		a, err := e.New(agents)
		if err != nil {
			run.agentErrs[e.Name] = err // harms only its own rollouts
			continue
		}
		run.Agents[e.Name] = a
	}
	var err error
	run.Evaluators, err = newEvaluators(plan)
	return run, err
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

// agent returns an agent of the plan.
func (run *Run) agent(name string) (agent.Agent, error) {
	if err := run.agentErrs[name]; err != nil {
		return nil, err
	}
	a, ok := run.Agents[name]
	if !ok {
		return nil, fmt.Errorf("the plan has no agent %q", name)
	}
	return a, nil
}

// within is a path that the plan has relative to the eval set's folder.
func (r *Run) within(rel string) string {
	if rel = filepath.FromSlash(rel); filepath.IsAbs(rel) {
		return rel
	}
	return filepath.Join(r.Dir, rel)
}

// filter is the redaction of the run, nil if there is none.
func (r *Run) filter() func(io.Writer) io.WriteCloser {
	if r.Redact == nil {
		return nil
	}
	return r.Redact.Writer
}
