package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/starter"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/tasks"
)

// runFlags are the flags of run that choose what is run.
type runFlags struct {
	load     runner.LoadOptions
	create   runner.CreateOptions
	sandbox  sandboxFlags
	detach   bool
	dryRun   bool
	interval string
	rebuild  bool
	dataset  runner.FetchOptions
	watch    bool
}

const allowCodeUsage = "run evaluators that are Python code outside of the repository, or the folder, you are in"

func runCommand(g *globals) *cobra.Command {
	var f runFlags
	var w workFlags
	cmd := &cobra.Command{
		Use:   "run [EVALSET|TASKDIR|GITURL...] [-- COMMAND...]",
		Short: "Run an eval set or task directories (--wait: until all rollouts are done)",
		Long: `Run an eval set against its agents, or task directories (folders with a task.toml, datasets, globs
of these), or an eval set with further tasks. Tasks in git repositories are named by
git+https://HOST/REPOSITORY#COMMIT:FOLDER, or by a registry with --dataset; they are fetched once.
Without a name the eval set of this folder is run, evals/evalset.yaml say, if there is but one.
--agent names an agent of the set, one of the registry, a file with an agent entry, a function or
graph in a file (agent.py:main), or a model (model:PROVIDER/MODEL).

Rollouts whose agent waits for a job or a person are suspended. With --wait the command runs until
the run is final. Without it, it ends with exit code 75, and evalrun resume or an executor continues
the run later. It still waits for results that their source will forget, such as those of MCP tasks
with a time to live, unless --detach is given.`,
		Example: `  evalrun run evalset.json
  evalrun run --wait -j 8 evalset.json
  evalrun run evalset.json -- python3 agent.py
  evalrun run --agent oracle tasks/
  evalrun run --agent claude -d terminal-bench@2.0`,
		Args: w.waitArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths := args
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				paths, f.load.Command = args[:at], args[at:]
			}
			if len(paths) == 0 && f.dataset.Dataset == "" {
				if paths = starter.EvalSets("."); len(paths) != 1 {
					return usageError("name an eval set; at the usual places of this folder there %s", thereAre(paths))
				}
			}
			err := f.run(cmd, g, w, paths)
			if in := (*runner.InputError)(nil); errors.As(err, &in) {
				err = cmp.Or(setsInFolder(paths), err)
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.load.Agents, "agent", nil,
		"run `NAME|FILE`: one of the set's agents, one of the registry, the agent entry in a file, FILE:NAME, or model:PROVIDER/MODEL, instead of all that the set names (repeatable)")
	registerDataset(fl, &f.dataset)
	fl.StringSliceVar(&f.load.EvalIDs, "eval-id", nil, "run only the evaluations `ID,...`")
	fl.StringVar(&f.load.Filter, "filter", "",
		"run only the evaluations whose id or name matches `PATTERN`, a glob or a part of it")
	fl.StringSliceVar(&f.load.Tags, "tag", nil, "run only the evaluations that have one of the tags `TAG,...`")
	fl.IntVar(&f.load.Limit, "limit", 0, "run only the first `N` of the chosen evaluations")
	fl.IntVar(&f.load.Sample, "sample", 0, "run only `N` of the chosen evaluations, a random sample")
	fl.Uint64Var(&f.load.Seed, "seed", 1, "with --sample: the same seed `S` chooses the same evaluations")
	fl.StringVar(&f.create.FailedOf, "failed-of", "",
		"run the evaluations again that did not pass, faulted, or had a failed evaluator in `RUN`, separately for each agent")
	fl.BoolVar(&f.create.LastFailed, "last-failed", false, "the same as --failed-of with the newest run of this eval set")
	fl.StringVar(&f.create.RetryOf, "retry-of", "", "run the rollouts again that faulted in `RUN`")
	fl.IntVar(&f.load.Epochs, "epochs", 0, "run each evaluation `N` times (default: as often as the set says, else once)")
	fl.StringVar(&f.interval, "interval", "",
		"compute intervals by `gaffke|t`; t assumes that rare large losses would have been seen (default: as the set says, else gaffke)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only say what would be run; nothing is stored or started")
	fl.StringVar(&f.load.Answers, "answers", "",
		"play the people whose answers are in `FILE`, beside those that the set plays")
	fl.StringVar(&f.load.Mocks, "mocks", "",
		"play the tools of MCP servers as `FILE` says, beside those that the set plays")
	fl.BoolVar(&f.load.Strict, "strict", false, "treat unknown keys as errors")
	fl.BoolVar(&f.load.AllowCode, "allow-code", false, allowCodeUsage)
	fl.BoolVar(&f.load.AllowUnset, "allow-unset", false,
		"treat tasks whose variables were not passed as not runnable, instead of refusing the run")
	titled(fl, titleWhat)
	fl.BoolVar(&f.rebuild, "rebuild", false, "build the Dockerfiles of tasks again, whatever images are there")
	fl.BoolVar(&f.create.KeepWorkspaces, "keep-workspaces", false,
		"keep what the agents leave in their homes and workspaces when the run is final")
	fl.BoolVar(&f.load.Fresh, "fresh", false,
		"give each segment a process of its own, also of agents whose workers are kept")
	fl.BoolVar(&f.load.Cache, "cache", false,
		"take the outputs of agents from earlier runs with --cache if input, agent and its program are the same")
	fl.BoolVar(&f.watch, "watch", false,
		"run again whenever the files of the set, its agents or their programs change, and only what has changed")
	fl.BoolVar(&f.load.Batch, "batch", false,
		"have agents that are models ask in batches, at half the price; each answer takes up to 24 h")
	titled(fl, titleAgents)
	fl.StringVar(&f.load.JudgeModel, "judge-model", "",
		"ask the model `NAME` if a judge has no model of its own and the agent's model is not known (default: $EVALRUN_JUDGE_MODEL)")
	fl.BoolVar(&f.load.NoJudgeCache, "no-judge-cache", false, "ask judges again what they were asked before")
	fl.BoolVar(&f.load.JudgeBatch, "judge-batch", false,
		"ask judges in batches, at half the price; answers take up to 24 h")
	titled(fl, titleJudges)
	fl.StringVar(&f.create.RunID, "run-id", "", "create the run with the id `ID`, or continue it if it exists")
	fl.BoolVar(&f.create.AsPlanned, "as-planned", false,
		"with --run-id: continue the run as it was planned, even if the eval set has changed")
	fl.IntVar(&f.create.Priority, "priority", 0,
		"let processes of several runs begin rollouts of this one before those of runs with a priority below `N`")
	fl.BoolVar(&f.detach, "detach", false,
		"do not wait for results that their sources will forget; an executor or evalrun resume must fetch them in time")
	titled(fl, titleWaiting)
	fl.BoolVar(&f.create.FailFast, "fail-fast", false,
		"cancel what has not ended when a rollout has faulted, or has no score that passes (exit code 1 or 3)")
	titled(fl, titleVerdict)
	f.sandbox.register(cmd)
	w.register(cmd)
	return cmd
}

// setsInFolder explains why a run of these paths was refused, if one is a folder that has no tasks, but
// eval sets. Otherwise it returns nil.
func setsInFolder(paths []string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if _, err := tasks.Find([]string{path}); err == nil {
			continue
		}
		for _, dir := range []string{path, filepath.Join(path, "..")} { // evals/ is a usual place, too
			for _, set := range starter.EvalSets(dir) {
				set = filepath.Join(dir, set)
				if in, err := filepath.Rel(path, set); err == nil && filepath.IsLocal(in) {
					return usageError("%s: this folder has no tasks; name its eval set, as %s", path, set)
				}
			}
		}
	}
	return nil
}

// thereAre says which of several things are there.
func thereAre(names []string) string {
	if len(names) == 0 {
		return "is none; evalrun init writes a first one"
	}
	return "are several: " + strings.Join(names, ", ")
}

func (f *runFlags) run(cmd *cobra.Command, g *globals, w workFlags, paths []string) error {
	o, err := w.options()
	if err := errors.Join(err, f.check(cmd), f.checkWatch(cmd),
		w.refuseInputs(slices.Concat(paths, f.load.Agents, []string{f.sandbox.mcpConfig, f.load.Answers, f.load.Mocks})...)); err != nil {
		return err
	}
	if f.create.Deadline, err = deadlineOfJob(); err != nil {
		return err
	}
	if o.Variables, err = w.variables(); err != nil {
		return err
	}
	o.Stay = !f.detach
	if f.load.Sandbox, err = f.sandbox.options(); err != nil {
		return err
	}
	f.load.Variables, f.load.FailUnder = o.Variables, o.FailUnder
	o.FailUnder = nil // the plan has the thresholds
	f.load.Leave = w.written()
	if f.watch {
		return f.watchFiles(cmd, g, w, o, paths)
	}
	fetched, local, err := fetch(cmd, g, paths, f.dataset)
	if err != nil {
		return err
	}
	f.load.Fetched = fetched
	if err := strayDuration(paths); err != nil {
		return err
	}
	f.load.SelectAtOnce = f.create.FailedOf == "" && f.create.RetryOf == "" && !f.create.LastFailed
	set, err := f.loadSet(cmd, g, local)
	if err != nil {
		return err
	}
	if f.dryRun {
		return f.preview(cmd, g, set)
	}
	if err := w.refuseInputs(set.Files()...); err != nil {
		return err
	}
	f.create.CommandLine = commandLine(cmd, paths, f.load.Command)
	if f.rebuild {
		err := set.RebuildImages(cmd.Context(), func(line string) {
			if !g.quiet {
				printf(cmd.ErrOrStderr(), "%s\n", redact.Terminal(line))
			}
		})
		if err != nil {
			return internal(err)
		}
	}
	return g.withStore(cmd, true, func(s *runner.Store) error {
		if err := w.checkEvents(); err != nil {
			return err
		}
		run, err := s.Create(cmd.Context(), set, f.create)
		if err != nil {
			return err
		}
		switch {
		case g.quiet:
		case run.New:
			if isolation, why := set.Isolation(); why != "" {
				printf(cmd.ErrOrStderr(), "tasks run in %s, because this machine lacks what comes first: %s\n", isolation, redact.Line(why))
			}
			printf(cmd.ErrOrStderr(), "run %s of %s: %s\n", run.RunID, redact.Line(run.EvaluationSetName),
				counted(run.Rollouts, "rollout"))
			for _, note := range run.Notes {
				printf(cmd.ErrOrStderr(), "evalrun: %s\n", redact.Line(note))
			}
		default:
			printf(cmd.ErrOrStderr(), "run %s exists: going on with it, as it was planned\n", run.RunID)
		}
		return w.work(cmd, g, s, run.RunID, o, false)
	})
}

// loadSet reads the eval set, and says what of it is worth a warning. The set is there also if it has
// an error.
func (f *runFlags) loadSet(cmd *cobra.Command, g *globals, paths []string) (*runner.EvalSet, error) {
	set, err := runner.Load(paths, f.load)
	if set.Warnings != "" {
		printf(cmd.ErrOrStderr(), "%s\n", set.Warnings)
	}
	if err != nil {
		return set, internal(err)
	}
	if f.load.Cache && !g.quiet {
		for _, line := range set.Uncached() {
			printf(cmd.ErrOrStderr(), "evalrun: --cache: %s\n", redact.Line(line))
		}
	}
	return set, nil
}

// registerDataset registers the flags that name a data set of a registry.
func registerDataset(fl *pflag.FlagSet, o *runner.FetchOptions) {
	fl.StringVarP(&o.Dataset, "dataset", "d", "",
		"take the tasks of `NAME@VERSION`, a data set of --registry, or of REGISTRY#NAME@VERSION")
	fl.StringVar(&o.Registry, "registry", "",
		"find the --dataset in `FILE|FOLDER|URL`, a registry as Harbor publishes them (default: Harbor's own)")
}

// fetch brings the tasks of git repositories to this machine.
func fetch(cmd *cobra.Command, g *globals, paths []string, o runner.FetchOptions) (*runner.Fetched, []string, error) {
	if o.Registry != "" && o.Dataset == "" {
		return nil, nil, usageError("--registry has a meaning only with --dataset")
	}
	o.Say = func(line string) {
		if !g.quiet {
			printf(cmd.ErrOrStderr(), "%s\n", redact.Line(line))
		}
	}
	fetched, local, err := runner.Fetch(cmd.Context(), paths, o)
	if err != nil {
		return nil, nil, internal(err)
	}
	return fetched, local, nil
}

// repeated lists the flags of a run's stored command line that the command for repeating one
// evaluation keeps.
var repeated = []string{"store", "dataset", "registry", "strict", "answers", "mocks", "epochs", "interval", "wait", "env", "env-file", "isolation",
	"mcp-config", "mcp",
	"timeout-multiplier", "agent-timeout-multiplier", "verifier-timeout-multiplier",
	"environment-build-timeout-multiplier", "override-cpus", "override-memory-mb", "override-storage-mb",
	"fail-under", "fail-on-error", "fail-on-evaluator-error", "allow-unscored", "allow-not-run", "allow-suspended"}

// commandLine is how evalrun was called, without the flags that choose agents and evaluations, and
// without outputs.
func commandLine(cmd *cobra.Command, paths, command []string) []string {
	words := append([]string{executable, cmd.Name()}, paths...)
	for _, name := range repeated {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if name == "store" { // a URL may have a password
			values = []string{backend.Name(values[0])}
		}
		for _, value := range values {
			switch flag.NoOptDefVal {
			case "":
				words = append(words, "--"+name, value)
			case value:
				words = append(words, "--"+name)
			default: // the flag takes its value in one word only
				words = append(words, "--"+name+"="+value)
			}
		}
	}
	if command != nil {
		words = append(append(words, "--"), command...)
	}
	return words
}

// deadlineOfJob is the deadline of an evalrun that is itself a job of another; zero if it has none.
func deadlineOfJob() (time.Time, error) {
	text := os.Getenv(wait.DeadlineVar)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usageError("%s: expected a time such as 2026-07-06T12:00:00Z, got %q", wait.DeadlineVar, text)
	}
	return at, nil
}

// check finds what is wrong with the flags before anything begins. A flag that was given needs a
// value, although its zero value means the default.
func (f *runFlags) check(cmd *cobra.Command) error {
	if n := f.load.Epochs; cmd.Flags().Changed("epochs") && (n < 1 || n > runner.MaxEpochs) {
		return usageError("--epochs: expected a whole number from 1 to %d, got %d", runner.MaxEpochs, n)
	}
	method, err := intervalMethod(cmd, f.interval)
	if f.load.Interval = method; err != nil {
		return err
	}
	if cmd.Flags().Changed("run-id") && f.create.RunID == "" {
		return usageError("--run-id: expected up to 128 letters, digits, dots, hyphens and underscores, the first one a letter or a digit, got %q",
			"")
	}
	for flag, n := range map[string]int{"limit": f.load.Limit, "sample": f.load.Sample} {
		if cmd.Flags().Changed(flag) && n < 1 {
			return usageError("--%s: expected a whole number from 1, got %d", flag, n)
		}
	}
	switch {
	case cmd.Flags().Changed("seed") && f.load.Sample == 0:
		return usageError("--seed has a meaning only with --sample")
	case f.dryRun && f.create.RunID != "":
		return usageError("--dry-run: a run that is there already goes on as it was planned; leave out --run-id to see what a new one would have")
	}
	return f.create.Check()
}
