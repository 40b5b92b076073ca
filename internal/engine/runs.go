package engine

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/gateway"
	mcpsource "github.com/evalrun/evalrun/internal/gateway/source"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/sources"
)

// cachedRuns is how many runs are kept at once.
const cachedRuns = 32

// runCache keeps the runs that were used last, and the servers and clients that all runs share.
type runCache struct {
	o    *Options
	load func(ctx context.Context, runID string) (*rollout.Run, error)

	// mu is not held while a run is loaded, because a large plan takes long.
	mu   sync.Mutex
	runs map[string]*rollout.Run
	// loading has a channel for each run that is being loaded. The channel is closed when the load
	// ends.
	loading map[string]chan struct{}
	// order lists their ids, the most recently used last.
	order []string
	// models and gateway are nil until an agent needs them.
	models  *modelproxy.Proxy
	gateway *gateway.Gateway
	// http is the client for requests to judges, and to MCP servers while no agent runs.
	http *http.Client
	// judging is the value that judgesAtOnce returns.
	judging int
}

func newRunCache(o *Options) *runCache {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 16, 16, 30*time.Second
	c := &runCache{o: o, runs: map[string]*rollout.Run{}, loading: map[string]chan struct{}{},
		http: &http.Client{Transport: transport}}
	c.load = c.read
	return c
}

// get returns a run of the store. If another goroutine is loading the run, get waits for it.
func (c *runCache) get(ctx context.Context, runID string) (*rollout.Run, error) {
	for {
		c.mu.Lock()
		if run, ok := c.runs[runID]; ok {
			c.used(runID)
			c.mu.Unlock()
			return run, nil
		}
		loaded, ok := c.loading[runID]
		if !ok {
			break
		}
		c.mu.Unlock()
		select {
		case <-loaded:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	loaded := make(chan struct{})
	c.loading[runID] = loaded
	c.mu.Unlock()
	defer func() { // also if it panics
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.loading, runID)
		close(loaded)
	}()
	run, err := c.load(ctx, runID)
	if err == nil {
		c.keep(runID, run)
	}
	return run, err
}

// keep keeps a run. When the cache is full, it replaces the least recently used run.
func (c *runCache) keep(runID string, run *rollout.Run) {
	c.mu.Lock()
	var least *rollout.Run
	if len(c.runs) >= cachedRuns {
		least = c.runs[c.order[0]]
		delete(c.runs, c.order[0]) // those who work on it still have it
		c.order = c.order[1:]
	}
	c.runs[runID] = run
	c.order = append(c.order, runID)
	c.mu.Unlock()
	if least != nil {
		if err := least.Close(); err != nil {
			c.o.Logger.Warn("an agent could not be ended", "error", err)
		}
	}
}

// used moves a run to the end of the order.
func (c *runCache) used(runID string) {
	last := len(c.order) - 1
	if c.order[last] == runID {
		return
	}
	i := slices.Index(c.order, runID)
	copy(c.order[i:], c.order[i+1:])
	c.order[last] = runID
}

// redactor returns the redactor of a run or, if the plan cannot be read, that of the process.
func (c *runCache) redactor(ctx context.Context, runID string) *redact.Redactor {
	if run, err := c.get(ctx, runID); err == nil {
		return run.Redact
	}
	return redact.New(c.o.Secrets)
}

// close closes the runs and the servers that they share.
func (c *runCache) close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, run := range c.runs {
		err = errors.Join(err, run.Close())
	}
	clear(c.runs)
	c.order = nil
	c.http.CloseIdleConnections()
	if c.gateway != nil {
		err = errors.Join(err, c.gateway.Close())
	}
	if c.models != nil {
		err = errors.Join(err, c.models.Close())
	}
	return err
}

// read makes a run of its stored plan.
func (c *runCache) read(ctx context.Context, runID string) (*rollout.Run, error) {
	stored, err := c.o.Store.Plan(context.WithoutCancel(ctx), runID)
	if err != nil {
		return nil, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return nil, err
	}
	agents := agent.Options{Resolve: c.o.Resolve, Now: c.o.Now, Version: c.o.Version}
	if slices.ContainsFunc(plan.Agents, func(e agent.Entry) bool { return e.Needs().Models || e.Needs().Gateway }) {
		if agents.Models, agents.Gateway, err = c.listen(); err != nil {
			return nil, err
		}
	}
	dir, err := c.openBaseDir(ctx, runID, plan)
	if err != nil {
		return nil, err
	}
	set := sources.New(plan.Jobs, wait.Env{
		Resolve: c.o.Resolve, Now: c.o.Now, BaseDir: dir,
		StoreDir: c.o.Store.Dir(), Executable: c.o.Executable,
		MCP: mcpsource.New(mcpsource.Options{Lookup: plan.Lookup(c.o.Resolve), Client: c.http, Now: c.o.Now,
			Work: func(ctx context.Context, rolloutID, callID string) (*wait.Work, error) {
				return rollout.WorkOf(ctx, c.o.Store, rolloutID, callID)
			}}),
	})
	secrets := maps.Clone(c.o.Secrets)
	for _, e := range plan.Agents {
		for name, value := range e.Secrets(dir) {
			if secrets == nil {
				secrets = map[string]string{}
			}
			secrets[e.Name+" "+name] = value
		}
	}
	run, err := rollout.NewRun(plan, dir, c.o.Store.Dir(), agents, set, plan.Redactor(secrets, c.o.Resolve))
	if err != nil {
		set.Close()
		return nil, err
	}
	if plan.Judges != nil {
		run.Judges = c.judges(runID, run)
	}
	return run, nil
}

// judges returns the models that the evaluators of a run ask.
func (c *runCache) judges(runID string, run *rollout.Run) *judge.Judges {
	models := map[string]string{}
	for _, a := range run.Plan.Agents {
		models[a.Name] = plans.ModelOf(a)
	}
	c.mu.Lock()
	c.judging = max(c.judging, run.Plan.Judges.Concurrency())
	c.mu.Unlock()
	return judge.New(judge.Options{
		Config: *run.Plan.Judges, CacheDir: files.Of(c.o.Store).JudgeCache(), AgentModels: models,
		Resolve: c.o.Resolve,
		Redact:  run.Redact, Client: c.http, Now: c.o.Now,
		Spent: func(ctx context.Context) (judge.Spent, error) { return rollout.SpentOnJudges(ctx, c.o.Store, runID) },
	})
}

// judgesAtOnce returns how many calls of judges the runs so far may have in flight at once.
func (c *runCache) judgesAtOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.judging
}

// listen starts the model proxy and the MCP gateway for the first run that needs them.
func (c *runCache) listen() (_ *modelproxy.Proxy, _ *gateway.Gateway, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models == nil {
		if c.models, err = modelproxy.New(modelproxy.Options{}); err != nil {
			return nil, nil, err
		}
	}
	if c.gateway == nil {
		if c.gateway, err = gateway.Listen("127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
	}
	return c.models, c.gateway, nil
}

// openBaseDir finds the eval set's folder again, or makes it of what the plan keeps of it. It logs a
// warning if there is none.
func (c *runCache) openBaseDir(ctx context.Context, runID string, p plans.Plan) (string, error) {
	dir, found, err := p.OpenBaseDir(context.WithoutCancel(ctx), c.o.Store, runID, c.o.WorkDir)
	switch {
	case err != nil:
		return "", err
	case !found:
		c.o.Logger.Warn("the eval set's folder is not where it was; agents start in the store's parent folder",
			"expected", p.BaseDir, "folder", dir)
	case dir == files.Of(c.o.Store).Run(runID).Set():
		c.o.Logger.Info("the eval set's folder is not on this machine; what the plan has of it is used", "folder", dir)
	}
	return dir, nil
}
