package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/dataset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// ValidateOptions say how strict [Validate] is.
type ValidateOptions struct {
	// Strict turns warnings into errors.
	Strict bool
	// AllowCode loads evaluators that are code in Python wherever they are, to check their criteria;
	// without it only those in the working tree.
	AllowCode bool
	// Variables are the variables that would be passed to tasks.
	Variables Variables
}

// Checked is the result of [Validate] for one file or task directory. Its JSON is what evalrun
// validate --json prints.
type Checked struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	Valid bool   `json:"valid"`
	// Problems has one line for each problem.
	Problems []string `json:"problems"`
	// Task has all values of a task. Gaps are the parts that cannot be executed here, and Notes those
	// that are done differently. Missing are the variables that it needs and that are not passed.
	Task    *tasks.Task   `json:"task,omitempty"`
	Gaps    []tasks.Gap   `json:"gaps,omitempty"`
	Notes   []tasks.Gap   `json:"notes,omitempty"`
	Missing []MissingName `json:"missing,omitempty"`

	// Err is the error, and Warnings are the warnings; nil and empty if there are none.
	Err      error  `json:"-"`
	Warnings string `json:"-"`
}

// MissingName is a variable that a task needs, with the key in which it stands.
type MissingName struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Validate checks eval sets, evaluators, results documents and task directories without running
// anything, and calls f with the result of each. Datasets and globs of tasks count as their tasks.
func Validate(paths []string, o ValidateOptions, f func(Checked)) {
	for _, path := range validatedPaths(paths) {
		f(validateOne(path, o))
	}
}

// validatedPaths replaces datasets and globs with their task directories. Any other path is judged
// when it is checked.
func validatedPaths(paths []string) (out []string) {
	for _, path := range paths {
		dirs := []string{path}
		if _, patterns := splitPaths(dirs); patterns != nil {
			if found, err := tasks.Find(patterns); err == nil {
				dirs = found
			}
		}
		out = append(out, dirs...)
	}
	return out
}

func validateOne(path string, o ValidateOptions) Checked {
	c := Checked{Path: path, Problems: []string{}}
	var problems input.Problems
	c.Kind, problems, c.Err = c.examine(path, o)
	if o.Strict && (c.Err == nil || len(problems) > 0) {
		c.Err = problems.Err(true)
	} else if warnings := problems.Warnings(); len(warnings) > 0 {
		c.Warnings = warnings.Error()
	}
	c.Valid = c.Err == nil
	for _, p := range problems {
		c.Problems = append(c.Problems, p.Error())
	}
	if c.Err != nil && len(problems) == 0 {
		c.Problems = append(c.Problems, c.Err.Error())
	}
	return c
}

// examine checks a path as the kind of file that it looks like. The problems include the warnings;
// the error is the reason why it is invalid.
func (c *Checked) examine(path string, o ValidateOptions) (kind string, problems input.Problems, err error) {
	if tasks.IsDir(path) {
		t, problems := tasks.Load(path)
		if err := problems.Err(false); err != nil {
			return "a task", problems, err
		}
		var place SandboxOptions
		place.choose([]string{path}, true)
		can, services := place.placeOf(t)
		if !can.Containers && sandbox.Available() != nil {
			can.NoNetwork, can.FileTree = false, false
		}
		c.Task, c.Gaps, c.Notes = t, append(t.Lacks(), t.Gaps(can)...), t.Notes(can)
		for _, m := range tasks.MissingVariables(t.Config.Missing(o.Variables.lookup)) {
			c.Missing = append(c.Missing, MissingName{m.Name, m.Key})
		}
		if can.Services {
			c.Gaps = append(c.Gaps, composeGaps(t, o.Variables.lookup)...)
		}
		if can.Images && place.isolation() != IsolationDocker && services != IsolationDocker {
			c.Gaps = append(c.Gaps, imageGaps(t)...)
		}
		return "a task", problems, nil
	}
	if _, patterns := splitPaths([]string{path}); patterns != nil {
		_, err := tasks.Find(patterns)
		return "", nil, err
	}
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return "", nil, fmt.Errorf("%w%s", input.Unreadable(path, err), input.NearFile(path))
	}
	n, err := input.Parse(path, data)
	if err != nil {
		return "", nil, err
	}
	switch {
	case tasks.IsRegistry(n):
		_, problems := tasks.LoadRegistry(path)
		return "a registry of tasks", problems, problems.Err(false)
	case n.Member("evaluationSetResults") != nil || n.Member("schemaVersion") != nil:
		_, err := report.ReadResults(path)
		return "a results document", nil, err
	case looksLikeEvaluator(n):
		_, problems, err := evalset.ParseEvaluator(path, data)
		return "an evaluator", problems, err
	}
	return examineSet(path, o)
}

func examineSet(path string, o ValidateOptions) (kind string, problems input.Problems, err error) {
	set, problems, err := evalset.Load(path)
	if err != nil {
		return "", problems, err
	}
	r := &input.Reader{Problems: problems}
	wait.ParseJobs(r, set.Jobs)
	notify.ParseTargets(r, set.Notify)
	judge.ParseConfig(r, set.Judges)
	if _, err := readAnswers(r, set, ""); err != nil {
		return "", nil, err
	}
	if _, err := readMocks(r, set, ""); err != nil {
		return "", nil, err
	}
	rows := dataset.Parse(r, set)
	if err := checkAgents(r, set); err != nil {
		return "", nil, err
	}
	checkRetry(r, set)
	checkFaults(r, set)
	if set.Node.Member("tasks") == nil && rows == nil && len(set.Evaluations) == 0 {
		r.Warnf(set.Node.Member("evaluations"), "no evaluation; the set can be run only with tasks beside it")
	}
	if dirs, err := tasks.Find(tasksOf(r, set)); err == nil {
		for _, dir := range dirs {
			_, problems := tasks.Load(dir)
			r.Problems = append(r.Problems, problems...)
		}
		if addRows(r, set, rows) {
			checkThresholds(r, set, len(dirs))
		}
	}
	dir, err := filepath.Abs(filepath.Dir(set.Path))
	if err != nil {
		return "", nil, err
	}
	if err := checkCode(r, set, dir, o.AllowCode); err != nil {
		return "", nil, err
	}
	return "an eval set", r.Problems, r.Problems.Err(false)
}

// checkAgents checks a set's agents, and that their programs are on this machine. A missing program
// is a warning, because the set may be run on another machine.
func checkAgents(r *input.Reader, set *eval.Set) error {
	agents, err := newEvalSet(set).parseAgents(r)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(filepath.Dir(set.Path))
	if err != nil {
		return err
	}
	for i, a := range agents {
		f := program.Check(a, dir, nil, agent.Options{Resolve: os.LookupEnv})
		if f == nil {
			f = program.CheckScript(a, dir)
		}
		if f != nil {
			r.Warnf(set.Agents[i], "the agent %s cannot be run on this machine: %s", a.Name, f.Message)
		}
		if err := a.Absent(dir); err != nil {
			r.Warnf(set.Agents[i], "the agent %s cannot be run: %v", a.Name, err)
		}
	}
	return nil
}

// addRows checks the rows of a set's data set. It adds their evaluations without inputs and
// criteria, so that they can be counted, and reports whether these are all: of very many rows it
// adds only some.
func addRows(r *input.Reader, set *eval.Set, d *dataset.Dataset) bool {
	const most = 10_000
	var rows []eval.Evaluation
	all := true
	_ = d.Each(r, func(e eval.Evaluation) error { // only this function could return an error
		if all = len(rows) < most; all {
			for id := range e.Criteria {
				e.Criteria[id] = nil
			}
			e.Inputs = nil
			rows = append(rows, e)
		}
		return nil
	})
	set.Evaluations = append(set.Evaluations, rows...)
	return all
}

// looksLikeEvaluator tells an evaluator file from an eval set: only a set has evaluations.
func looksLikeEvaluator(n *input.Node) bool {
	if n.Member("evaluations") != nil {
		return false
	}
	for _, key := range []string{"evaluatorTypeId", "evaluator_type_id", "evaluatorConfig", "evaluator_config",
		"category"} {
		if n.Member(key) != nil {
			return true
		}
	}
	return strings.HasSuffix(filepath.ToSlash(filepath.Dir(n.File)), "/evaluators")
}
