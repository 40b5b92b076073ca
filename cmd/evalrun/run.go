package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// maxEpochs is the most that --epochs takes, as an eval set does.
const maxEpochs = 10_000

// runFlags are the flags of run that say what is run.
type runFlags struct {
	agents  []string
	evalIDs []string
	filter  string
	epochs  int
	runID   string
	retryOf string
	// asPlanned goes on with a run of another plan.
	asPlanned bool
	// keepWorkspaces is that of the plan.
	keepWorkspaces bool
	strict         bool
	detach         bool
	placeFlags
}

func runCommand(g *globals) *cobra.Command {
	var f runFlags
	var w workFlags
	cmd := &cobra.Command{
		Use:   "run EVALSET|TASKDIR... [-- COMMAND...]",
		Short: "Run an eval set, or task directories; suspended rollouts are left suspended unless --wait",
		Long: `Run an eval set against its agents, or task directories (folders with a task.toml, datasets, globs of these), or an eval set with
further tasks. --agent names an agent of the set, one of the registry, or a file with an agent entry.

Rollouts whose agent waits for a job or a person are suspended. With --wait the command goes on until the run is final;
without it it ends with exit code 75, and evalrun resume, or an executor, goes on with the run later. A result that its source will
forget, such as that of an MCP task with a time to live, is waited for all the same, unless --detach leaves it to others.`,
		Example: `  evalrun run evalset.json
  evalrun run --wait -j 8 evalset.json
  evalrun run evalset.json -- python3 agent.py
  evalrun run --agent oracle tasks/`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			sets, command := args, []string(nil)
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				sets, command = args[:at], args[at:]
			}
			w.stay = !f.detach
			return run(cmd, g, f, w, sets, command)
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.agents, "agent", nil, "run `NAME|FILE`: one of the set's agents, one of the registry, or the agent entry in a file, instead of all that the set names (repeatable)")
	fl.StringSliceVar(&f.evalIDs, "eval-id", nil, "run only the evaluations `ID,...`")
	fl.StringVar(&f.filter, "filter", "", "run only the evaluations whose id or name matches `PATTERN`, a glob or a part of it")
	fl.IntVar(&f.epochs, "epochs", 0, "run each evaluation `N` times (default: as often as the set says, else once)")
	fl.StringVar(&f.runID, "run-id", "", "create the run with the id `ID`, or go on with it if it is there")
	fl.BoolVar(&f.asPlanned, "as-planned", false, "with --run-id: go on with the run as it was planned, although the eval set has changed")
	fl.StringVar(&f.retryOf, "retry-of", "", "run again the rollouts that faulted in `RUN`")
	fl.BoolVar(&f.strict, "strict", false, "take unknown keys for errors")
	fl.BoolVar(&f.detach, "detach", false, "do not wait for results that their sources will forget: an executor, or a resume in time, will fetch them")
	fl.BoolVar(&f.keepWorkspaces, "keep-workspaces", false, "keep what the agents leave in their homes and workspaces when the run is final")
	f.register(cmd)
	w.register(cmd)
	return cmd
}

func run(cmd *cobra.Command, g *globals, f runFlags, w workFlags, paths, command []string) (err error) {
	ctx := cmd.Context()
	if err := errors.Join(w.check(), f.check(cmd), w.refuseInputs(slices.Concat(paths, f.agents, []string{f.mcpConfig})...)); err != nil {
		return err
	}
	env, err := w.environment()
	if err != nil {
		return err
	}
	req, warnings, err := f.request(paths, command, env)
	if len(warnings) > 0 {
		printf(cmd.ErrOrStderr(), "%s\n", warnings)
	}
	if err != nil {
		return err
	}
	if err := checkVariables(req.Agents, env); err != nil {
		return err
	}
	s, err := g.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	if f.retryOf != "" {
		if err := f.keepFaulted(ctx, s, &req); err != nil {
			return err
		}
	}
	req.Env, req.KeepWorkspaces = env.passed, f.keepWorkspaces
	req.Origin = plans.Origin{GitCommit: gitCommit(ctx, req.BaseDir), Version: version(), EvalIDs: f.evalIDs, Filter: f.filter}
	plan, err := plans.New(req, s.Dir())
	if err != nil {
		return internal(err)
	}
	created, err := s.CreateRun(ctx, plan)
	if err != nil {
		return internal(err)
	}
	if !created {
		there, err := s.Run(ctx, plan.RunID)
		if err != nil {
			return internal(err)
		}
		if there.EvaluationSetID != plan.EvaluationSetID {
			return usageError("--run-id %s: that run is of the eval set %q, not of %q; give this one another id", plan.RunID, there.EvaluationSetID, plan.EvaluationSetID)
		}
		if !f.asPlanned {
			if err := sameAsPlanned(ctx, s, plan); err != nil {
				return err
			}
		}
	}
	switch {
	case g.quiet:
	case created:
		printf(cmd.ErrOrStderr(), "run %s of %s: %d rollouts\n", plan.RunID, redact.Line(plan.EvaluationSetName), len(plan.Rollouts))
	default:
		printf(cmd.ErrOrStderr(), "run %s exists: going on with it, as it was planned\n", plan.RunID)
	}
	until := engine.UntilIdle
	if w.wait {
		until = engine.UntilFinal
	}
	return w.work(cmd, g, s, plan.RunID, env, until, false)
}

// runIDPattern is what --run-id may be: it becomes the name of a folder.
var runIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// check finds what is wrong with the flags before anything begins.
func (f runFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("epochs") && (f.epochs < 1 || f.epochs > maxEpochs) {
		return usageError("--epochs: expected a whole number from 1 to %d, got %d", maxEpochs, f.epochs)
	}
	if cmd.Flags().Changed("run-id") && !runIDPattern.MatchString(f.runID) {
		return usageError("--run-id: expected up to 128 letters, digits, dots, hyphens and underscores, the first one a letter or a digit, got %q", f.runID)
	}
	if f.asPlanned && f.runID == "" {
		return usageError("--as-planned has a meaning only with --run-id")
	}
	return nil
}

// request reads everything that the run is made of. Problems that are not errors come back as warnings.
func (f runFlags) request(paths, command []string, env environment) (plans.Request, input.Problems, error) {
	var req plans.Request
	sets, patterns := splitArgs(paths)
	if len(sets) > 1 {
		return req, nil, usageError("expected one eval set, got %d", len(sets))
	}
	r := &input.Reader{}
	if err := f.load(r, &req, sets, patterns); err != nil {
		return req, r.Problems.Warnings(), err
	}
	set := req.Set
	req.RunID = f.runID
	req.Jobs = wait.ParseJobs(r, set.Jobs)
	req.Agents = parseAgents(r, set)
	checkRetry(r, set)
	checkFaults(r, set)
	if err := f.chooseAgents(r, &req, command); err != nil {
		return req, r.Problems.Warnings(), err
	}
	if patterns = append(patterns, ofSet(r, set)...); len(patterns) > 0 {
		if err := addTasks(r, &req, patterns, f.capabilities(), env.lookup); err != nil {
			return req, r.Problems.Warnings(), err
		}
	}
	switch {
	case len(set.Evaluations) == 0 && len(patterns) == 0 && len(set.Tasks) == 0:
		r.Errorf(set.Node.Member("evaluations"), "expected at least one evaluation, got none")
	case len(req.Agents) == 0 && len(sets) == 0:
		return req, nil, usageError("no agent; give one with --agent NAME|FILE or -- COMMAND… (the registry has %s)", strings.Join(agent.Names(), ", "))
	case len(req.Agents) == 0:
		r.Errorf(set.Node, "no agent; add the key agent, or give one with --agent NAME|FILE or -- COMMAND…")
	}
	if err := r.Problems.Err(f.strict); err != nil {
		if f.strict {
			return req, nil, &exitError{exitUsage, err}
		}
		return req, r.Problems.Warnings(), &exitError{exitUsage, err}
	}
	place, problems, err := f.place(livesInEnvironment(req.Agents) || len(patterns) > 0, env.lookup)
	if err != nil {
		return req, r.Problems.Warnings(), err
	}
	if req.Environment = place; place.Isolation != "" {
		req.Hidden = hidden(set, len(sets) > 0)
	}
	r.Problems = append(r.Problems, problems...)
	if err := set.Select(f.evalIDs, f.filter); err != nil {
		return req, nil, &exitError{exitUsage, fmt.Errorf("%s: %w", set.Path, err)}
	}
	if f.epochs > 0 {
		set.Epochs = f.epochs
	}
	return req, r.Problems.Warnings(), nil
}

// load reads the eval set, or makes one for tasks that belong to none.
func (f runFlags) load(r *input.Reader, req *plans.Request, sets, patterns []string) (err error) {
	if req.WorkDir, err = os.Getwd(); err != nil {
		return internal(err)
	}
	req.BaseDir = req.WorkDir
	if len(sets) == 0 {
		req.Set, err = taskSet(patterns)
		return err
	}
	set, problems, err := eval.Load(sets[0])
	r.Problems = problems
	if err != nil {
		return &exitError{exitUsage, unreadable(sets[0], err)}
	}
	req.Set = set
	req.BaseDir, err = filepath.Abs(filepath.Dir(set.Path))
	return internal(err)
}

// chooseAgents puts the agents of the command line in place of the set's. A command starts where it was typed, an agent of a file
// beside that file.
func (f runFlags) chooseAgents(r *input.Reader, req *plans.Request, command []string) error {
	if command != nil {
		if len(command) == 0 || len(f.agents) > 0 {
			return usageError("expected either --agent or a command after --")
		}
		e, err := startedIn(agent.FromCommand(command), req, req.WorkDir)
		req.Agents = []agent.Entry{e}
		return err
	}
	if len(f.agents) == 0 {
		return nil
	}
	own := req.Agents
	req.Agents = nil
	for i, name := range f.agents {
		if slices.Contains(f.agents[:i], name) {
			return usageError("--agent %s is given twice", name)
		}
		if i := slices.IndexFunc(own, func(e agent.Entry) bool { return e.Name == name }); i >= 0 {
			req.Agents = append(req.Agents, own[i])
			continue
		}
		if e, ok := agent.Registered(name); ok {
			req.Agents = append(req.Agents, e)
			continue
		}
		data, err := input.ReadFile(name, input.MaxFile)
		if err != nil {
			return noAgent(own, name, err)
		}
		n, err := input.Parse(name, data)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		dir, err := filepath.Abs(filepath.Dir(name))
		if err != nil {
			return internal(err)
		}
		e, err := startedIn(agent.ParseEntry(r, n), req, dir)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(req.Agents, func(other agent.Entry) bool { return other.Name == e.Name }) {
			return usageError("--agent %s: there are two agents with the name %q; give each a \"name\" of its own", name, e.Name)
		}
		req.Agents = append(req.Agents, e)
	}
	return nil
}

// noAgent says that --agent names neither one of the set's own agents nor a file.
func noAgent(own []agent.Entry, name string, err error) error {
	var names []string
	for _, e := range own {
		names = append(names, e.Name)
	}
	has := "none"
	if len(names) > 0 {
		has = strings.Join(names, ", ")
	}
	return usageError("--agent: expected the name of one of the set's agents (%s) or of the registry's (%s), or a file with an agent entry; %w%s",
		has, strings.Join(agent.Names(), ", "), unreadable(name, err), input.Suggest(name, append(names, agent.Names()...)))
}

// startedIn makes an agent's cwd, which is relative to dir, relative to the eval set's folder, as it is stored.
func startedIn(e agent.Entry, req *plans.Request, dir string) (agent.Entry, error) {
	if filepath.IsAbs(e.Cwd) {
		return e, nil
	}
	var err error
	e.Cwd, err = filepath.Rel(req.BaseDir, filepath.Join(dir, e.Cwd)) // dir is absolute
	return e, internal(err)
}

// parseAgents reads the agents of a set. Names that come twice are an error: results and rollout ids are told apart by them.
func parseAgents(r *input.Reader, set *eval.Set) []agent.Entry {
	var out []agent.Entry
	seen := map[string]bool{}
	for _, n := range set.Agents {
		e := agent.ParseEntry(r, n)
		if seen[e.Name] && e.Name != "" {
			r.Errorf(n, "there are two agents with the name %q; give each a \"name\" of its own", e.Name)
		}
		seen[e.Name] = true
		out = append(out, e)
	}
	return out
}

// checkRetry warns of categories in retry.on that no fault has.
func checkRetry(r *input.Reader, set *eval.Set) {
	known := []string{"*"}
	for _, c := range fault.Categories {
		known = append(known, string(c))
	}
	on := set.Node.Member("retry").Member("on")
	if on == nil {
		return
	}
	for _, n := range on.Items {
		if !slices.Contains(known, n.Text) {
			r.Warnf(n, "no fault has the category %q%s", n.Text, input.Suggest(n.Text, known))
		}
	}
}

// checkFaults makes sure that each category of faults is one: otherwise a fault would stay whose it was without a word.
func checkFaults(r *input.Reader, set *eval.Set) {
	faults := set.Node.Member("faults")
	if faults == nil {
		return
	}
	var known []string
	for _, c := range fault.Categories {
		known = append(known, string(c))
	}
	for _, m := range faults.Members {
		if !slices.Contains(known, m.Key) {
			r.Errorf(m.Value, "no fault has the category %q%s", m.Key, input.Suggest(m.Key, known))
		}
	}
}

// sameAsPlanned makes sure that a run that is there has the plan of this command: otherwise it would go on with other evaluations or
// thresholds than those that were given.
func sameAsPlanned(ctx context.Context, s store.Store, plan store.Plan) error {
	stored, err := s.Plan(ctx, plan.RunID)
	if err != nil {
		return internal(err)
	}
	var evaluations []store.Evaluation
	if err := s.Snapshot(ctx, plan.RunID, func(v store.View) error {
		return v.Evaluations(func(e store.Evaluation) error {
			evaluations = append(evaluations, e)
			return nil
		})
	}); err != nil {
		return internal(err)
	}
	changes, err := plans.Changes(stored, evaluations, plan)
	if err != nil || len(changes) == 0 {
		return internal(err)
	}
	const most = 10
	if more := len(changes) - most; more > 0 {
		changes = append(changes[:most], fmt.Sprintf("and %d more", more))
	}
	return usageError("--run-id %s: that run was planned with other values than these: %s; give this one another id, or go on as it was planned with --as-planned",
		plan.RunID, redact.Line(strings.Join(changes, ", ")))
}

// gitCommit is the commit that is checked out in a folder; empty if that is in no repository, or there is no git.
func gitCommit(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", dir, "rev-parse", "--verify", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// keepFaulted keeps the rollouts that faulted in another run.
func (f runFlags) keepFaulted(ctx context.Context, s store.Store, req *plans.Request) error {
	id, err := runByPrefix(ctx, s, f.retryOf)
	if err != nil {
		return err
	}
	type key struct {
		evaluation, agent string
		epoch             int
	}
	faulted, evaluations, epochs := map[key]bool{}, map[string]bool{}, req.Set.Epochs
	err = s.Snapshot(ctx, id, func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			if o.State == store.StateFaulted && slices.ContainsFunc(req.Agents, func(a agent.Entry) bool { return a.Name == o.Agent }) {
				faulted[key{o.EvaluationID, o.Agent, o.Epoch}], evaluations[o.EvaluationID] = true, true
				epochs = max(epochs, o.Epoch)
			}
			return nil
		})
	})
	if err != nil {
		return internal(err)
	}
	req.RetryOf, req.Set.Epochs = id, epochs
	req.Only = func(evaluation, agent string, epoch int) bool { return faulted[key{evaluation, agent, epoch}] }
	req.Set.Evaluations = slices.DeleteFunc(req.Set.Evaluations, func(e eval.Evaluation) bool { return !evaluations[e.ID] })
	if len(req.Set.Evaluations) == 0 {
		return usageError("--retry-of %s: nothing faulted in it that is in this eval set", f.retryOf)
	}
	return nil
}

// planOf reads the plan of a stored run.
func planOf(ctx context.Context, s store.Store, runID string) (plans.Plan, error) {
	stored, err := s.Plan(ctx, runID)
	if err != nil {
		return plans.Plan{}, internal(err)
	}
	plan, err := plans.Read(stored)
	if errors.Is(err, plans.ErrLater) {
		return plan, &exitError{exitUsage, err}
	}
	return plan, internal(err)
}

// printJSON writes one JSON document on stdout.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(stdout(cmd))
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return internal(enc.Encode(v))
}
