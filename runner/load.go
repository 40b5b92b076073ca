package runner

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/dataset"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// MaxEpochs is the most that LoadOptions.Epochs may be, maxRetries the most of LoadOptions.Retries.
const (
	MaxEpochs  = 10_000
	maxRetries = 1000
)

// LoadOptions narrow an eval set down, and choose the agents that run it.
type LoadOptions struct {
	// Agents run the set in place of its own: each is the name of one of the set's agents, of one of
	// the registry, or a file with an agent entry.
	Agents []string
	// Command, if not nil, is a function agent that runs the set, with its arguments. It starts in
	// the folder of the process.
	Command []string
	// EvalIDs and Filter choose evaluations: by id, and by a glob or a part of id or name.
	EvalIDs []string
	Filter  string
	// Tags choose the evaluations that have one of them. Limit takes the first so many of the rest,
	// Sample so many by chance, which Seed repeats; 0 means all.
	Tags   []string
	Limit  int
	Sample int
	Seed   uint64
	// SelectAtOnce applies Limit or Sample while a data set is read, which needs little memory. It is
	// not for options of Create that choose before them: FailedOf, LastFailed, RetryOf.
	SelectAtOnce bool
	// Epochs is how often each evaluation runs; 0 means as often as the set says.
	Epochs int
	// FailUnder are thresholds that replace the set's thresholds for the same figures.
	FailUnder eval.FailUnder
	// Interval is how intervals are computed; empty means as the set says.
	Interval stats.Method
	// Strict turns unknown keys into errors.
	Strict bool
	// Answers is a file with answers of people who are played; those that it has come before those of
	// the set, and after those of an evaluation.
	Answers string
	// Mocks is the same for mocks of tools.
	Mocks string
	// Cache has runs keep the outputs of agents, and take those of earlier runs with Cache of the store.
	// WatchSession does the same for the runs of a session alone; Cache includes it. Leave are files that
	// are written, and no part of a program.
	Cache        bool
	WatchSession string
	Leave        []string
	// Sandbox chooses the sandbox of agents and tasks that need one.
	Sandbox SandboxOptions
	// Fetched, if not nil, says which of the paths were fetched, and from where.
	Fetched *Fetched
	// Variables are the variables that agents, jobs and tasks may name.
	Variables Variables
	// Retries, if not nil, is the set's retry.max, and RetryOn, if not nil, its retry.on.
	Retries *int
	RetryOn []string
	// Timeout, if not 0, is the set's limits.timeout: the working time of a rollout.
	Timeout time.Duration
	// JudgeModel is the model of judges that would ask the agent's own model, if that is not known.
	// NoJudgeCache asks judges again for verdicts that are cached.
	JudgeModel   string
	NoJudgeCache bool
	// AllowUnset makes tasks not runnable if they name variables that are not passed, instead of
	// refusing the run.
	AllowUnset bool
	// JudgeBatch asks judges in the batches of their providers.
	JudgeBatch bool
	// Batch has agents that are models ask in the batches of their providers.
	Batch bool
	// Fresh gives each segment a process of its own, also of agents whose workers would be kept.
	Fresh bool
	// AllowCode lets evaluators run that are code in Python outside of the working tree: the repository,
	// or the folder, of the process.
	AllowCode bool
	// Inputs, if not nil, is a JSON object. Its members replace those of the same names in the inputs
	// of every evaluation.
	Inputs json.RawMessage
	// Upload, if not nil, is the eval set itself, and Catalog holds what it may name; both are for
	// evalrun's own service.
	Upload  *Upload
	Catalog *Catalog
}

// EvalSet is the input of a run's plan: evaluations, evaluators and agents, checked.
type EvalSet struct {
	// Warnings are problems of the files that are not errors, one line each; empty if there are none.
	// Load sets it even when it fails.
	Warnings string

	req     plans.Request
	opts    LoadOptions
	dataset *dataset.Dataset
	// all is how many evaluations the set has before it is narrowed down. dropped says that Limit or
	// Sample have been applied to them already, because there are so many.
	all     int
	dropped bool
	// onlyTasks says that there are task directories and no eval set.
	onlyTasks bool
	// unset are the variables that tasks need and that are not passed, by evaluation.
	unset map[string][]*tasks.MissingVariableError
}

func newEvalSet(set *eval.Set) *EvalSet { return &EvalSet{req: plans.Request{Set: set}} }

// Name is the name of the eval set.
func (e *EvalSet) Name() string { return e.req.Set.Name }

// Len is the number of evaluations.
func (e *EvalSet) Len() int { return len(e.req.Set.Evaluations) }

// Load reads an eval set, or task directories, datasets and globs of them, or one eval set with
// further tasks. The EvalSet is never nil: it has the warnings even when there is an error.
func Load(paths []string, o LoadOptions) (*EvalSet, error) {
	e := &EvalSet{opts: o}
	r := &input.Reader{}
	err := e.load(r, paths)
	if warnings := r.Problems.Warnings(); len(warnings) > 0 {
		e.Warnings = warnings.Error()
	}
	return e, err
}

func (e *EvalSet) load(r *input.Reader, paths []string) error {
	if err := e.opts.checkSelection(); err != nil {
		return err
	}
	sets, patterns := splitPaths(paths)
	if e.opts.Upload != nil {
		sets = []string{e.opts.Upload.Name}
	}
	if len(sets) > 1 {
		return inputError("expected one eval set, got %d", len(sets))
	}
	err := e.read(r, sets, patterns)
	if err != nil {
		return err
	}
	req, set := &e.req, e.req.Set
	if f := e.opts.Fetched; f != nil {
		r.Problems = append(r.Problems, f.warnings...)
		set.TaskDataset = f.dataset
	}
	e.dataset = dataset.Parse(r, set)
	req.Jobs, req.Notify = wait.ParseJobs(r, set.Jobs), notify.ParseTargets(r, set.Notify)
	if req.Answers, err = readAnswers(r, set, e.opts.Answers); err != nil {
		return err
	}
	if req.Mocks, err = readMocks(r, set, e.opts.Mocks); err != nil {
		return err
	}
	e.readJudges(r)
	if err := e.addJobs(); err != nil {
		return err
	}
	if req.Agents, err = e.parseAgents(r); err != nil {
		return err
	}
	checkRetry(r, set)
	checkFaults(r, set)
	if err := e.chooseAgents(r); err != nil {
		return err
	}
	if len(sets) > 0 {
		if err := e.discoverAgent(); err != nil {
			return err
		}
	}
	if err := e.askInBatches(); err != nil {
		return err
	}
	for i := range req.Agents {
		req.Agents[i].Fresh = e.opts.Fresh
	}
	if patterns = append(patterns, tasksOf(r, set)...); len(patterns) > 0 {
		if err := e.addTasks(r, patterns); err != nil {
			return err
		}
	}
	switch {
	case len(set.Evaluations) == 0 && len(patterns) == 0 && len(set.Tasks) == 0 && e.dataset == nil:
		r.Errorf(set.Node.Member("evaluations"), "expected at least one evaluation, got none")
	case len(req.Agents) == 0 && e.opts.Upload != nil:
		return inputError("no agent; name one of %s", e.opts.Catalog.names())
	case len(req.Agents) == 0 && len(sets) == 0:
		r.Problems = nil
		return inputError("no agent; give one with --agent NAME|FILE or -- COMMAND… (the registry has %s)",
			strings.Join(agent.Names(), ", "))
	case len(req.Agents) == 0:
		r.Errorf(set.Node, "no agent; add the key agent, or give one with --agent NAME|FILE or -- COMMAND…")
	}
	if err := r.Problems.Err(e.opts.Strict); err != nil {
		if e.opts.Strict {
			r.Problems = nil // the error has them all
		}
		return &InputError{Err: err}
	}
	if err := e.checkMocks(); err != nil {
		return err
	}
	problems, err := e.place(needSandbox(req.Agents) || len(patterns) > 0)
	if err != nil {
		return err
	}
	if req.Isolation != "" {
		req.Hidden = hidden(set, len(sets) > 0)
		if e.dataset != nil {
			rel, err := filepath.Rel(req.BaseDir, e.dataset.In(req.BaseDir))
			if err != nil {
				return err
			}
			req.Hidden = append(req.Hidden, filepath.ToSlash(rel))
		}
	}
	r.Problems = append(r.Problems, problems...)
	if err := e.narrow(r); err != nil {
		return err
	}
	if err := e.checkUnset(); err != nil {
		return err
	}
	if err := checkCode(r, set, req.BaseDir, e.opts.AllowCode || e.opts.Catalog != nil); err != nil {
		return err
	}
	if err := r.Problems.Err(e.opts.Strict); err != nil {
		return &InputError{Err: err}
	}
	checkThresholds(r, set, e.most()-len(set.Evaluations))
	if err := e.chooseJudges(r); err != nil {
		return err
	}
	if err := e.cacheOutputs(); err != nil {
		return err
	}
	if err := e.opts.Variables.check(req.Agents); err != nil || e.opts.Catalog != nil {
		// A remote caller learns of missing programs from the rollouts, not of this machine's files.
		return err
	}
	return e.opts.Variables.checkPrograms(req.Agents, req.BaseDir)
}

// narrow reduces the set to the chosen evaluations and epochs.
func (e *EvalSet) narrow(r *input.Reader) error {
	set := e.req.Set
	if err := e.choose(r); err != nil {
		return err
	}
	switch n := e.opts.Epochs; {
	case n < 0 || n > MaxEpochs:
		return inputError("--epochs: expected a whole number from 1 to %d, got %d", MaxEpochs, n)
	case n > 0:
		set.Epochs = n
	}
	if e.opts.Interval != "" {
		set.Interval = e.opts.Interval
	}
	return e.override()
}

// choose reads the data set, if there is one, and keeps the chosen ones of all evaluations.
func (e *EvalSet) choose(r *input.Reader) error {
	set := e.req.Set
	chosen, err := set.Choose(eval.Wanted{IDs: e.opts.EvalIDs, Pattern: e.opts.Filter, Tags: e.opts.Tags,
		Limit: e.opts.Limit, Sample: e.opts.Sample, Seed: e.opts.Seed, AtOnce: e.opts.SelectAtOnce})
	prompts := e.newPromptCheck()
	for _, one := range set.Evaluations {
		if missing := prompts.missing(one); missing != "" {
			r.Errorf(inputsNode(set, one.ID), "%s", missing)
		}
		if err == nil {
			err = chosen.Add(one)
		}
	}
	if err == nil {
		err = e.dataset.Each(r, func(one eval.Evaluation) error {
			if missing := prompts.missing(one); missing != "" {
				return input.Problem{Key: "dataset.inputs", Message: missing}
			}
			return chosen.Add(one)
		})
	}
	if err := r.Problems.Err(e.opts.Strict); err != nil {
		return &InputError{Err: err}
	}
	if err == nil {
		set.Evaluations, err = chosen.Done()
	}
	if err != nil {
		r.Problems = nil
		return inputError("%s: %w", set.Path, err)
	}
	e.all, e.dropped = chosen.Added(), chosen.Dropped()
	return nil
}

// override replaces values of the set with those of the options.
func (e *EvalSet) override() error {
	set := e.req.Set
	if n := e.opts.Retries; n != nil {
		if *n < 0 || *n > maxRetries {
			return inputError("expected 0 to %d retries, got %d", maxRetries, *n)
		}
		set.Retry.Max = *n
	}
	if on := e.opts.RetryOn; on != nil {
		for _, one := range on {
			if one != "*" && !slices.Contains(categories(), one) {
				return inputError("no fault has the category %q%s", one, input.Suggest(one, categories()))
			}
		}
		set.Retry.On = on
	}
	switch d := e.opts.Timeout; {
	case d < 0:
		return inputError("the working time of a rollout: expected a duration above 0, got %v", d)
	case d > 0:
		set.Limits.Timeout = d
	}
	if err := e.opts.FailUnder.Check(set); err != nil {
		return inputError("--fail-under: %w", err)
	}
	set.Thresholds.Under(e.opts.FailUnder)
	if e.opts.Inputs == nil {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(e.opts.Inputs, &given); err != nil {
		return inputError("inputs: expected a JSON object")
	}
	for i := range set.Evaluations {
		one := &set.Evaluations[i]
		inputs := map[string]json.RawMessage{}
		if err := json.Unmarshal(one.Inputs, &inputs); err != nil {
			return inputError("inputs: those of the evaluation %q are no object, so that nothing in them can be replaced",
				one.ID)
		}
		maps.Copy(inputs, given)
		var err error
		if one.Inputs, err = json.Marshal(inputs); err != nil {
			return err
		}
	}
	return nil
}

// read reads the eval set, or makes one for tasks that belong to none.
func (e *EvalSet) read(r *input.Reader, sets, patterns []string) (err error) {
	req := &e.req
	if req.WorkDir, err = os.Getwd(); err != nil {
		return err
	}
	req.BaseDir = req.WorkDir
	if e.opts.Upload != nil {
		return e.readUpload(r)
	}
	if e.onlyTasks = len(sets) == 0; e.onlyTasks {
		req.Set, err = e.taskSet(patterns)
		return err
	}
	set, problems, err := evalset.Load(sets[0])
	r.Problems = problems
	if err != nil {
		return inputError("%w%s", input.Unreadable(sets[0], err), input.NearFile(sets[0]))
	}
	req.Set = set
	req.BaseDir, err = filepath.Abs(filepath.Dir(set.Path))
	return err
}

// checkRetry warns of categories in retry.on that no fault has.
func checkRetry(r *input.Reader, set *eval.Set) {
	on := set.Node.Member("retry").Member("on")
	if on == nil {
		return
	}
	known := append([]string{"*"}, categories()...)
	for _, n := range on.Items {
		if !slices.Contains(known, n.Text) {
			r.Warnf(n, "no fault has the category %q%s", n.Text, input.Suggest(n.Text, known))
		}
	}
}

// checkFaults makes sure that each key of faults is a category. Otherwise a fault would silently
// keep its owner.
func checkFaults(r *input.Reader, set *eval.Set) {
	faults := set.Node.Member("faults")
	if faults == nil {
		return
	}
	known := categories()
	for _, m := range faults.Members {
		if !slices.Contains(known, m.Key) {
			r.Errorf(m.Value, "no fault has the category %q%s", m.Key, input.Suggest(m.Key, known))
		}
	}
}

// checkThresholds warns of thresholds by interval that no result can meet. The set may have further
// tasks, which are not among its evaluations yet.
func checkThresholds(r *input.Reader, set *eval.Set, tasks int) {
	for _, few := range set.TooFew(tasks) {
		node := set.Node.Member("thresholds")
		for _, key := range few.Key {
			node = node.Member(key)
		}
		r.Warnf(node, "at least %g by interval needs at least %d evaluations without a failure; the set has %d",
			few.Threshold.Min, few.Needed, few.Has)
	}
}

// categories are the categories of faults.
func categories() (out []string) {
	for _, c := range fault.Categories {
		out = append(out, string(c))
	}
	return out
}

// hidden lists the paths of a run that no agent may see, relative to the eval set's folder.
func hidden(set *eval.Set, fromFile bool) (out []string) {
	seen := map[string]bool{}
	for _, e := range set.Evaluations {
		if e.Task != nil {
			// The dataset around a task is hidden too. If that is the folder of the agent's program, which
			// is shown, only the task is.
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
