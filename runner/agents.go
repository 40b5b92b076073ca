package runner

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/input"
)

// parseAgents reads the agents of the set. A name that comes twice is an error, because results and
// rollout ids tell agents apart by name.
func (e *EvalSet) parseAgents(r *input.Reader) (out []agent.Entry, err error) {
	seen := map[string]bool{}
	var nodes []*input.Node
	for _, n := range e.req.Set.Agents {
		if e.opts.Upload != nil { // it may only name one; two short lists could make millions
			nodes = append(nodes, n)
			continue
		}
		nodes = append(nodes, agent.Expand(n)...)
	}
	for _, n := range nodes {
		a, err := e.parseAgent(r, n)
		if err != nil {
			return nil, err
		}
		if seen[a.Name] && a.Name != "" {
			r.Errorf(n, "there are two agents with the name %q; give each a \"name\" of its own", a.Name)
		}
		seen[a.Name] = true
		out = append(out, a)
	}
	return out, nil
}

// parseAgent reads one agent. The uploader of a set may only name one.
func (e *EvalSet) parseAgent(r *input.Reader, n *input.Node) (agent.Entry, error) {
	c := e.opts.Catalog
	if n.Kind == input.String {
		if a, ok := c.agent(n.Text); ok {
			return e.startedIn(a, c.Dir)
		}
	}
	if e.opts.Upload == nil {
		return agent.ParseEntry(r, n), nil
	}
	if n.Kind != input.String {
		r.Errorf(n, "expected the name of an agent, one of %s, got %s", c.names(), n.Kind)
		return agent.Entry{}, nil
	}
	r.Errorf(n, "there is no agent %q; there are: %s%s", n.Text, c.names(), input.Suggest(n.Text, c.agentNames()))
	return agent.Entry{Name: n.Text}, nil
}

// chooseAgents replaces the set's agents with those of the options. A command starts in the folder
// of the process, an agent of a file in the folder of that file.
func (e *EvalSet) chooseAgents(r *input.Reader) error {
	names, command := e.opts.Agents, e.opts.Command
	if command != nil {
		if len(command) == 0 || len(names) > 0 {
			return inputError("expected either --agent or a command after --")
		}
		a, err := e.startedIn(function.FromCommand(command), e.req.WorkDir)
		e.req.Agents = []agent.Entry{a}
		return err
	}
	if len(names) == 0 {
		return nil
	}
	var chosen []agent.Entry
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return inputError("--agent %s is given twice", name)
		}
		a, err := e.agentNamed(r, name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(chosen, func(other agent.Entry) bool { return other.Name == a.Name }) {
			return inputError("--agent %s: there are two agents with the name %q; give each a \"name\" of its own", name, a.Name)
		}
		chosen = append(chosen, a)
	}
	e.req.Agents = chosen
	return nil
}

// discoverAgent gives a set that names no agent the one of the project in which it lies.
func (e *EvalSet) discoverAgent() error {
	if len(e.req.Agents) > 0 || e.opts.Catalog != nil {
		return nil
	}
	a, ok, err := agent.Discover(e.req.BaseDir)
	if err != nil {
		return &InputError{Err: err}
	}
	if ok {
		a, err = e.startedIn(a, e.req.WorkDir)
		e.req.Agents = []agent.Entry{a}
	}
	return err
}

// askInBatches has the agents that are models ask in batches, with --batch.
func (e *EvalSet) askInBatches() error {
	models := 0
	for i := range e.req.Agents {
		if a := &e.req.Agents[i]; e.opts.Batch && a.Type == modelagent.Name {
			models++
			if err := modelagent.InBatches(a); err != nil {
				return inputError("--batch: %w", err)
			}
		}
	}
	if e.opts.Batch && models == 0 {
		return inputError("--batch: no agent is of the type model")
	}
	return nil
}

// agentNamed returns one of the set's agents, one of the registry, or the one in a file.
func (e *EvalSet) agentNamed(r *input.Reader, name string) (agent.Entry, error) {
	if i := slices.IndexFunc(e.req.Agents, func(a agent.Entry) bool { return a.Name == name }); i >= 0 {
		return e.req.Agents[i], nil
	}
	if c := e.opts.Catalog; c != nil { // the caller is not at this machine: no file of it is read
		if a, ok := c.agent(name); ok {
			return e.startedIn(a, c.Dir)
		}
		known := c.agentNames()
		for _, a := range e.req.Agents {
			if !slices.Contains(known, a.Name) {
				known = append(known, a.Name)
			}
		}
		return agent.Entry{}, inputError("there is no agent %q; there are: %s%s", name, named(known),
			input.Suggest(name, known))
	}
	if a, ok := agent.Registered(name); ok {
		return a, nil
	}
	if model, ok := strings.CutPrefix(name, "model:"); ok {
		a, err := modelagent.FromModel(model)
		if err != nil {
			return a, inputError("--agent %s: %w", name, err)
		}
		if e.onlyTasks {
			modelagent.GiveTools(&a)
		}
		return a, nil
	}
	if a, ok, err := agent.OfWord(name); err != nil {
		return a, inputError("--agent: %w", err)
	} else if ok {
		return e.startedIn(a, e.req.WorkDir)
	}
	data, err := input.ReadFile(name, input.MaxFile)
	if err != nil {
		return agent.Entry{}, noAgent(e.req.Agents, name, err)
	}
	n, err := input.Parse(name, data)
	if err != nil {
		// A file of JSON that cannot be read is an entry with a mistake, although it may also list graphs.
		if _, ok, _ := agent.OfWord(name + ":main"); ok && filepath.Ext(name) != ".json" {
			return agent.Entry{}, inputError("--agent %s: which part of the file is the agent? Name it too: --agent %s:NAME",
				name, name)
		}
		return agent.Entry{}, &InputError{Err: err}
	}
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return agent.Entry{}, err
	}
	return e.startedIn(agent.ParseEntry(r, n), dir)
}

// noAgent returns the error that --agent names neither one of the set's own agents nor a file.
func noAgent(own []agent.Entry, name string, err error) error {
	var names []string
	for _, a := range own {
		names = append(names, a.Name)
	}
	has := "none"
	if len(names) > 0 {
		has = strings.Join(names, ", ")
	}
	return inputError("--agent: expected the name of one of the set's agents (%s) or of the registry's (%s), a file with an agent entry, or FILE:NAME, a function or graph in FILE; %w%s",
		has, strings.Join(agent.Names(), ", "), input.Unreadable(name, err),
		input.Suggest(name, append(names, agent.Names()...)))
}

// startedIn makes an agent's cwd relative to the eval set's folder, as it is stored. The given one
// is relative to the absolute folder dir.
func (e *EvalSet) startedIn(a agent.Entry, dir string) (agent.Entry, error) {
	if filepath.IsAbs(a.Cwd) {
		return a, nil
	}
	var err error
	a.Cwd, err = filepath.Rel(e.req.BaseDir, filepath.Join(dir, a.Cwd))
	return a, err
}

// needSandbox reports whether some agent needs a sandbox.
func needSandbox(agents []agent.Entry) bool {
	return slices.ContainsFunc(agents, func(a agent.Entry) bool { return a.Needs().Sandbox })
}
