package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// activeRun is what the runner needs of a run while it works on it, made from its plan.
type activeRun struct {
	plans.Plan
	baseDir    string
	agents     map[string]agent.Agent
	agentErrs  map[string]error // why an agent of the plan cannot be made
	sources    *wait.Sources
	evaluators []eval.Evaluator
	redact     *redact.Redactor
}

// cachedRuns is how many runs are kept at once.
const cachedRuns = 32

// runCache keeps the runs that were worked on last.
type runCache struct {
	load func(ctx context.Context, runID string) (*activeRun, error)
	mu   sync.Mutex
	runs map[string]*activeRun
	// order are their ids, the one that was used last at the end.
	order []string
}

func (c *runCache) get(ctx context.Context, runID string) (*activeRun, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run, ok := c.runs[runID]; ok {
		c.used(runID)
		return run, nil
	}
	run, err := c.load(ctx, runID)
	if err != nil {
		return nil, err
	}
	if c.runs == nil {
		c.runs = map[string]*activeRun{}
	}
	if len(c.runs) >= cachedRuns {
		delete(c.runs, c.order[0]) // whoever uses it keeps it
		c.order = c.order[1:]
	}
	c.runs[runID] = run
	c.order = append(c.order, runID)
	return run, nil
}

// used puts a run at the end of the order.
func (c *runCache) used(runID string) {
	last := len(c.order) - 1
	if c.order[last] == runID {
		return
	}
	i := slices.Index(c.order, runID)
	copy(c.order[i:], c.order[i+1:])
	c.order[last] = runID
}

func (c *runCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, run := range c.runs {
		run.sources.Close()
	}
	c.runs = nil
}

func (r *Runner) loadRun(ctx context.Context, runID string) (*activeRun, error) {
	stored, err := r.o.Store.Plan(context.WithoutCancel(ctx), runID)
	if err != nil {
		return nil, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return nil, err
	}
	run := &activeRun{Plan: plan, agents: map[string]agent.Agent{}, agentErrs: map[string]error{}}
	run.baseDir = r.findBaseDir(plan)
	run.redact = plan.Redactor(r.o.Secrets, r.o.Resolve)
	opts := agent.Options{Resolve: r.o.Resolve, Now: r.o.Now, Version: r.o.Version}
	if slices.ContainsFunc(plan.Agents, func(e agent.Entry) bool { return e.Type == agent.TypeACP }) {
		if opts.Models, err = r.modelProxy(); err != nil {
			return nil, err
		}
		if opts.Gateway, err = r.mcpGateway(); err != nil {
			return nil, err
		}
	}
	if run.redact != nil {
		opts.Redact = run.redact.Writer
	}
	for _, e := range plan.Agents {
		if run.agents[e.Name], err = agent.New(e, opts); err != nil {
			run.agentErrs[e.Name] = err // harms only its own rollouts
		}
	}
	for _, def := range plan.Set.Evaluators {
		if def.Type == eval.TypeVerifier {
			run.evaluators = append(run.evaluators, nil) // see worker.verify
			continue
		}
		e, err := eval.New(def)
		if err != nil {
			return nil, err
		}
		run.evaluators = append(run.evaluators, e)
	}
	run.sources = wait.NewSources(wait.Options{
		Jobs: plan.Jobs, BaseDir: run.baseDir, StoreDir: r.o.Store.Dir(), WakeDir: store.WakeDir(r.o.Store.Dir()), Executable: r.o.Executable,
		Resolve: r.o.Resolve, Now: r.o.Now, MCP: mcpSource{plan.Lookup(r.o.Resolve), r.http, r.o.Now},
	})
	return run, nil
}

// findBaseDir finds the eval set's folder again: where it was relative to the store; else, if the store was moved, where it was relative to the folder
// of the command; else beside the store.
func (r *Runner) findBaseDir(p plans.Plan) string {
	beside := filepath.Join(r.o.Store.Dir(), "..")
	for _, dir := range []string{
		filepath.Join(r.o.Store.Dir(), filepath.FromSlash(p.BaseDir)),
		filepath.Join(r.o.WorkDir, filepath.FromSlash(p.WorkDir)),
	} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	r.o.Logger.Warn("the eval set's folder is not where it was; agents start in the store's parent folder", "expected", p.BaseDir, "folder", beside)
	return beside
}

// agentFor returns an agent of the plan.
func (run *activeRun) agentFor(name string) (agent.Agent, error) {
	if err := run.agentErrs[name]; err != nil {
		return nil, err
	}
	a, ok := run.agents[name]
	if !ok {
		return nil, fmt.Errorf("the plan has no agent %q", name)
	}
	return a, nil
}

// modelProxy starts the model proxy with the first run that has a use for it.
func (r *Runner) modelProxy() (*modelproxy.Proxy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.models == nil {
		var err error
		if r.models, err = modelproxy.New(modelproxy.Options{}); err != nil {
			return nil, err
		}
	}
	return r.models, nil
}

// mcpGateway starts the MCP gateway with the first run that has a use for it.
func (r *Runner) mcpGateway() (*gateway.Gateway, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gateway == nil {
		var err error
		if r.gateway, err = gateway.Listen("127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	return r.gateway, nil
}
