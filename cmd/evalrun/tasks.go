package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// placeFlags say where agents live that live in an environment, and what they find there.
type placeFlags struct {
	isolation        string
	mcpConfig        string
	mcp              string
	ignoreDockerfile bool
}

func (p *placeFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.isolation, "isolation", sandbox.IsolationBwrap, "run ACP agents and tasks in `KIND`: bwrap (a file tree and processes of their own; Linux), or process (plain folders)")
	f.StringVar(&p.mcpConfig, "mcp-config", "", "give ACP agents the MCP servers of `FILE` too (mcpServers of a JSON, YAML or TOML file); one replaces a task's of the same name")
	f.StringVar(&p.mcp, "mcp", "gateway", "reach MCP servers through the `gateway`, which records calls and suspends rollouts on long-running work, or direct: as they are declared")
	f.BoolVar(&p.ignoreDockerfile, "ignore-dockerfile", false, "run tasks that name an image, or have a Dockerfile, with what this machine has instead")
}

// place reads what the flags name. needed says that some agent or task has a use for it, passed gives the variables that servers may name.
func (p *placeFlags) place(needed bool, passed tasks.Lookup) (plans.Environment, input.Problems, error) {
	var out plans.Environment
	if !slices.Contains([]string{sandbox.IsolationBwrap, sandbox.IsolationProcess}, p.isolation) {
		return out, nil, usageError("--isolation: expected %s or %s, got %q", sandbox.IsolationBwrap, sandbox.IsolationProcess, p.isolation)
	}
	switch p.mcp {
	case "", "gateway":
	case plans.MCPDirect:
		out.MCP = p.mcp
	default:
		return out, nil, usageError("--mcp: expected gateway or direct, got %q", p.mcp)
	}
	if !needed {
		if p.mcpConfig != "" {
			return out, nil, usageError("--mcp-config has a meaning only for ACP agents")
		}
		return out, nil, nil
	}
	if err := sandbox.Supported(p.isolation); err != nil {
		if p.isolation == sandbox.IsolationBwrap {
			err = fmt.Errorf("%w; or run in plain folders, without isolation: --isolation process", err)
		}
		return out, nil, usageError("--isolation: %w", err)
	}
	out.Isolation = p.isolation
	if p.mcpConfig == "" {
		return out, nil, nil
	}
	config, problems := tasks.LoadMCPConfig(p.mcpConfig)
	if err := problems.Err(false); err != nil {
		return out, nil, &exitError{exitUsage, err}
	}
	out.MCPServers = config.Servers
	for _, s := range config.Servers {
		if _, err := tasks.ExpandServer(s, passed); err != nil {
			return out, nil, usageError("%s: %w", p.mcpConfig, err)
		}
	}
	return out, problems, nil
}

// capabilities are what the isolation can do for a task.
func (p *placeFlags) capabilities() tasks.Capabilities {
	isolated := p.isolation == sandbox.IsolationBwrap
	return tasks.Capabilities{NoNetwork: isolated, FileTree: isolated, IgnoreDockerfile: p.ignoreDockerfile}
}

// splitArgs tells eval sets from task directories, datasets and globs of them.
func splitArgs(args []string) (sets, patterns []string) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err == nil && info.IsDir(), filepath.Base(arg) == "task.toml", err != nil && strings.ContainsAny(arg, "*?["):
			patterns = append(patterns, arg)
		default:
			sets = append(sets, arg)
		}
	}
	return sets, patterns
}

// taskSet is an eval set for tasks that belong to none.
func taskSet(patterns []string) (*eval.Set, error) {
	name := "tasks"
	if len(patterns) == 1 && !strings.ContainsAny(patterns[0], "*?[") {
		abs, err := filepath.Abs(patterns[0])
		if err != nil {
			return nil, internal(err)
		}
		if name = filepath.Base(abs); name == "task.toml" {
			name = filepath.Base(filepath.Dir(abs))
		}
	}
	data, err := json.Marshal(map[string]any{"version": "1.0", "id": name, "name": name, "evaluations": []any{}})
	if err != nil {
		return nil, internal(err)
	}
	set, _, err := eval.Parse(name, data, nil)
	if err != nil {
		return nil, internal(err)
	}
	set.Path, set.Digest = filepath.Join(".", name), ""
	return set, nil
}

// ofSet are the patterns of the tasks that an eval set names. One that finds none is recorded in r.
func ofSet(r *input.Reader, set *eval.Set) (patterns []string) {
	for i, glob := range set.Tasks {
		pattern := filepath.Join(filepath.Dir(set.Path), filepath.FromSlash(glob))
		if _, err := tasks.Find([]string{pattern}); err != nil {
			r.Errorf(set.Node.Member("tasks").Items[i], "%v", err)
			continue
		}
		patterns = append(patterns, pattern)
	}
	return patterns
}

// addTasks makes evaluations of task directories. What is wrong in them is recorded in r; what cannot be executed here makes the evaluation not
// runnable, with the reason.
func addTasks(r *input.Reader, req *plans.Request, patterns []string, can tasks.Capabilities, passed tasks.Lookup) error {
	dirs, err := tasks.Find(patterns)
	if err != nil {
		return usageError("%w", err)
	}
	set := req.Set
	first := map[string]string{}
	for _, e := range set.Evaluations {
		first[e.ID] = set.Path
	}
	for _, def := range set.Evaluators {
		if def.ID == eval.Verifier.ID {
			return usageError("%s: the evaluator %q has the name that a task's verifier has; give it another id", set.Path, def.ID)
		}
	}
	for _, dir := range dirs {
		e, problems, err := taskEvaluation(dir, req.BaseDir, can, passed)
		r.Problems = append(r.Problems, problems...)
		if err != nil {
			return err
		}
		if problems.Err(false) != nil {
			continue
		}
		if there, ok := first[e.ID]; ok {
			return usageError("%s: its name %q is already that of %s; give one of them another name in [task]", dir, e.ID, there)
		}
		first[e.ID] = dir
		set.Evaluations = append(set.Evaluations, e)
	}
	set.Evaluators = append(set.Evaluators, eval.Verifier)
	return nil
}

func taskEvaluation(dir, baseDir string, can tasks.Capabilities, passed tasks.Lookup) (e eval.Evaluation, problems input.Problems, err error) {
	t, problems := tasks.Load(dir)
	if problems.Err(false) != nil {
		return e, problems, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return e, problems, internal(err)
	}
	ref := eval.Task{Dir: abs}
	if rel, err := filepath.Rel(baseDir, abs); err == nil {
		ref.Dir = rel
	}
	ref.Dir = filepath.ToSlash(ref.Dir)
	if ref.Digest, err = tasks.Digest(dir); err != nil {
		return e, problems, usageError("%s: %w", dir, err)
	}
	inputs, err := json.Marshal(map[string]string{"instruction": t.Stages()[0].Instruction})
	if err != nil {
		return e, problems, internal(err)
	}
	e = eval.Evaluation{ID: t.Name, Name: t.Name, Inputs: inputs, Criteria: map[string]json.RawMessage{}, Task: &ref, NotRunnable: notRunnable(t, can, passed)}
	return e, problems, nil
}

// notRunnable says why a task cannot be run here; empty if it can.
func notRunnable(t *tasks.Task, can tasks.Capabilities, passed tasks.Lookup) string {
	var reasons []string
	if err := t.Runnable(); err != nil {
		reasons = append(reasons, err.Error())
	}
	if err := t.Config.Missing(passed); err != nil {
		reasons = append(reasons, strings.Split(err.Error(), "\n")...) // one for each variable
	}
	for _, gap := range t.Gaps(can) {
		reasons = append(reasons, gap.String())
	}
	return strings.Join(reasons, "; ")
}

// livesInEnvironment reports whether some agent does.
func livesInEnvironment(agents []agent.Entry) bool {
	for _, e := range agents {
		if e.LivesInEnvironment() {
			return true
		}
	}
	return false
}

// hidden is what no agent may see of a run, relative to the eval set's folder.
func hidden(set *eval.Set, fromFile bool) (out []string) {
	seen := map[string]bool{}
	for _, e := range set.Evaluations {
		if e.Task != nil {
			// With the dataset around it; but where that is the folder of the agent's program, which is shown, the task alone.
			for _, dir := range []string{path.Dir(e.Task.Dir), e.Task.Dir} {
				if !seen[dir] {
					seen[dir] = true
					out = append(out, dir)
				}
			}
		}
	}
	if fromFile {
		out = append(out, filepath.Base(set.Path), "../evaluators")
	}
	return out
}
