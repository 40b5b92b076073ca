package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/tasks"
)

// splitPaths tells eval sets from task directories, datasets and globs of them.
func splitPaths(paths []string) (sets, patterns []string) {
	for _, one := range paths {
		info, err := os.Stat(one)
		switch {
		case err == nil && info.IsDir(), filepath.Base(one) == "task.toml", err != nil && strings.ContainsAny(one, "*?["):
			patterns = append(patterns, one)
		default:
			sets = append(sets, one)
		}
	}
	return sets, patterns
}

// taskSet makes an eval set for tasks without one.
func (e *EvalSet) taskSet(patterns []string) (*eval.Set, error) {
	name := "tasks"
	if f := e.opts.Fetched; f != nil && f.dataset != nil {
		name = f.dataset.Name + "@" + f.dataset.Version
	} else if len(patterns) == 1 && !strings.ContainsAny(patterns[0], "*?[") {
		abs, err := filepath.Abs(patterns[0])
		if err != nil {
			return nil, err
		}
		if name = filepath.Base(abs); name == "task.toml" {
			name = filepath.Base(filepath.Dir(abs))
		}
	}
	data, err := json.Marshal(map[string]any{"version": "1.0", "id": name, "name": name, "evaluations": []any{}})
	if err != nil {
		return nil, err
	}
	set, _, err := evalset.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	set.Path, set.Digest = filepath.Join(".", name), ""
	return set, nil
}

// tasksOf returns the patterns of the task directories that an eval set names. A pattern without a
// match is recorded in r.
func tasksOf(r *input.Reader, set *eval.Set) (patterns []string) {
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

// addTasks makes evaluations of task directories. Their problems are recorded in r. A task that
// cannot be executed here is not runnable, with the reason.
func (e *EvalSet) addTasks(r *input.Reader, patterns []string) error {
	dirs, err := e.opts.Fetched.find(patterns)
	if err != nil {
		return &InputError{Err: err}
	}
	set := e.req.Set
	first := map[string]string{}
	for _, one := range set.Evaluations {
		first[one.ID] = set.Path
	}
	for _, def := range set.Evaluators {
		if def.ID == eval.Verifier.ID {
			return inputError("%s: the evaluator %q has the name that a task's verifier has; give it another id", set.Path,
				def.ID)
		}
	}
	e.opts.Sandbox.choose(dirs, len(set.Evaluations) == 0)
	for _, dir := range dirs {
		one, problems, err := e.taskEvaluation(dir)
		r.Problems = append(r.Problems, problems...)
		if err != nil {
			return err
		}
		if problems.Err(false) != nil {
			continue
		}
		if there, ok := first[one.ID]; ok {
			return inputError("%s: its name %q is already that of %s; give one of them another name in [task]", dir, one.ID,
				there)
		}
		first[one.ID] = dir
		set.AddDefaults(&one)
		set.Evaluations = append(set.Evaluations, one)
	}
	set.Evaluators = append(set.Evaluators, eval.Verifier)
	return nil
}

func (e *EvalSet) taskEvaluation(dir string) (one eval.Evaluation, problems input.Problems, err error) {
	t, problems := tasks.Load(dir)
	if problems.Err(false) != nil {
		return one, problems, nil
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return one, problems, err
	}
	ref := eval.Task{Dir: abs, Source: e.opts.Fetched.source(abs), OfDataset: e.opts.Fetched.ofDataset(abs)}
	if rel, err := filepath.Rel(e.req.BaseDir, abs); err == nil {
		ref.Dir = rel
	}
	ref.Dir = filepath.ToSlash(ref.Dir)
	if ref.Digest, err = tasks.Digest(dir); err != nil {
		return one, problems, inputError("%s: %w", dir, err)
	}
	can, services := e.opts.Sandbox.placeOf(t)
	ref.Image, ref.Services = can.Images && t.HasImage(), services
	inputs, err := json.Marshal(map[string]string{"instruction": t.Stages()[0].Instruction})
	if err != nil {
		return one, problems, err
	}
	one = eval.Evaluation{ID: t.Name, Name: t.Name, Inputs: inputs, Criteria: map[string]json.RawMessage{}, Task: &ref,
		Tags: tagsOf(t), NotRunnable: notRunnable(t, can, e.opts.Variables.lookup)}
	if one.WorkerTags, err = workerTagsOf(t); err != nil {
		return one, problems, inputError("%s: %w", filepath.Join(dir, "task.toml"), err)
	}
	missing := t.Config.Missing(e.opts.Variables.lookup)
	if missing != nil && e.opts.AllowUnset {
		one.NotRunnable = strings.TrimPrefix(one.NotRunnable+"; "+strings.ReplaceAll(missing.Error(), "\n", "; "), "; ")
	} else if all := tasks.MissingVariables(missing); all != nil {
		if e.unset == nil {
			e.unset = map[string][]*tasks.MissingVariableError{}
		}
		e.unset[one.ID] = all
	}
	return one, problems, nil
}

// checkUnset refuses a run of tasks that name variables which are not passed. Otherwise it would
// take a fault of each to learn of them all. Tasks that are not runnable need none.
func (e *EvalSet) checkUnset() error {
	var lines, names []string
	for _, one := range e.req.Set.Evaluations {
		if one.NotRunnable != "" {
			continue
		}
		for _, m := range e.unset[one.ID] {
			lines = append(lines, fmt.Sprintf("  %s: ${%s}, in %s", one.ID, m.Name, m.Key))
			if name := "--env " + m.Name; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	const most = 20
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("  and %d more", more))
	}
	if lines == nil {
		return nil
	}
	return inputError("tasks need variables that are not passed to them; pass them with %s, or leave these tasks out (--allow-unset):\n%s",
		strings.Join(names, " "), strings.Join(lines, "\n"))
}

// tagsOf returns the tags in a task's metadata. Metadata is for people: anything but a list of tags
// counts as none.
func tagsOf(t *tasks.Task) []string {
	var metadata struct{ Tags []string }
	if json.Unmarshal(t.Config.Metadata, &metadata) != nil {
		return nil
	}
	return metadata.Tags
}

// workerTagsOf returns what a task's metadata says that a process must have to run it.
func workerTagsOf(t *tasks.Task) ([]string, error) {
	var metadata map[string]json.RawMessage
	_ = json.Unmarshal(t.Config.Metadata, &metadata) // it may be missing
	var tags []string
	if text, ok := metadata["workerTags"]; ok &&
		(json.Unmarshal(text, &tags) != nil || slices.ContainsFunc(tags, func(tag string) bool { return !input.IsLabel(tag) })) {
		return nil, errors.New(`metadata.workerTags: expected tags of up to 63 letters, digits, dots, hyphens and underscores, such as ["gpu"]`)
	}
	return tags, nil
}

// notRunnable returns why a task cannot be run here; empty if it can.
func notRunnable(t *tasks.Task, can tasks.Capabilities, lookup tasks.Lookup) string {
	var reasons []string
	if err := t.Runnable(); err != nil {
		reasons = append(reasons, err.Error())
	}
	gaps := t.Gaps(can)
	if can.Services {
		gaps = append(gaps, composeGaps(t, lookup)...)
	}
	for _, gap := range gaps {
		reasons = append(reasons, gap.String())
	}
	return strings.Join(reasons, "; ")
}
