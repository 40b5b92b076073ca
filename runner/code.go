package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/internal/evalworker"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/mock"
)

// codeTime is how long the code of an evaluator may take to be loaded and asked about criteria.
const codeTime = time.Minute

// codeCheck asks the evaluators of a set that are code in Python about their criteria. So the code
// is loaded before any agent has run.
type codeCheck struct {
	r   *input.Reader
	set *eval.Set
	// dir is the folder of the set, absolute.
	dir string
	// allowed says that code may be anywhere.
	allowed bool
	workers *evalworker.Workers
}

// checkCode records the problems of a set's evaluators in Python. The error says that their code is
// not to be run.
func checkCode(r *input.Reader, set *eval.Set, dir string, allowed bool) (err error) {
	c := codeCheck{r: r, set: set, dir: dir, allowed: allowed, workers: evalworker.New(false)}
	defer func() { err = errors.Join(err, c.workers.Close()) }()
	for _, def := range set.Evaluators {
		if python.Is(def) {
			err = errors.Join(err, c.check(def))
		}
	}
	return errors.Join(err, c.checkFunctions())
}

// checkFunctions refuses functions that are played by code which belongs to somebody else's files.
func (c *codeCheck) checkFunctions() error {
	if c.allowed || !slices.ContainsFunc(slices.Collect(maps.Values(c.set.MockedFunctions)), mock.HasCode) {
		return nil
	}
	tree, err := workingTree()
	if err != nil || within(tree, c.dir) {
		return err
	}
	return inputError("mockingStrategy: a _target_ is code, and the eval set is outside of %s, in which you work: %s; %s",
		tree, c.set.Path, "look at it, and run it with --allow-code")
}

func (c *codeCheck) check(def eval.Definition) error {
	code := python.Of(def, c.dir)
	if err := mayRun(def, code, c.allowed); err != nil {
		return err
	}
	e, err := kinds.All.New(def)
	if err != nil {
		return nil // it has been reported
	}
	var asked []json.RawMessage
	var of []string
	known := map[string]bool{}
	for _, one := range c.set.Evaluations {
		raw, asks := one.Criteria[def.ID]
		if !asks || len(raw) == 0 {
			continue
		}
		criteria, err := e.Criteria(raw, one.ExpectedOutput)
		if err != nil {
			continue // it is reported for every evaluator
		}
		text, err := json.Marshal(criteria)
		if err == nil && !known[string(text)] {
			known[string(text)] = true
			asked, of = append(asked, text), append(of, one.ID)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), codeTime)
	defer cancel()
	problems, err := python.Check(ctx, c.workers, code, asked)
	var lacking *eval.NotAsked
	switch {
	case errors.As(err, &lacking):
		c.r.Warnf(c.defined(def.ID), "the evaluator %s cannot be run on this machine: %s", def.ID, lacking.Reason)
	case err != nil:
		c.r.Errorf(c.defined(def.ID), "evaluator %s: %v", def.ID, err)
	}
	for i, problem := range problems {
		if problem != "" {
			c.r.Errorf(c.criteria(of[i], def.ID), "evaluation %s: the criteria for %s: %s", of[i], def.ID, problem)
		}
	}
	return nil
}

// defined returns the place of an evaluator in the set; the set itself if it is in a file.
func (c *codeCheck) defined(id string) *input.Node {
	if all := c.set.Node.Member("evaluators"); all != nil {
		for _, n := range all.Items {
			if own := n.Member("id"); own != nil && own.Text == id {
				return n
			}
		}
	}
	return c.set.Node
}

// criteria returns the place of an evaluation's criteria.
func (c *codeCheck) criteria(evaluation, evaluator string) *input.Node {
	n := evaluationNode(c.set, evaluation)
	for _, name := range []string{"evaluationCriterias", "evaluation_criterias"} {
		if own := n.Member(name).Member(evaluator); own != nil {
			return own
		}
	}
	return n
}

// mayRun says why the code of an evaluator is not to be run: it belongs to somebody else's files.
func mayRun(def eval.Definition, code python.Code, allowed bool) error {
	if allowed {
		return nil
	}
	paths := []string{code.Dir}
	for _, file := range code.Files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(evalworker.Project(code.Dir), file)
		}
		paths = append(paths, file)
	}
	if name := code.Interpreter; strings.Contains(name, "/") && !filepath.IsAbs(name) {
		paths = append(paths, filepath.Join(code.Dir, name))
	}
	tree, err := workingTree()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil && !within(tree, path) {
			return inputError("the evaluator %s is code outside of %s, in which you work: %s; look at it, and run it with --allow-code",
				def.ID, tree, path)
		}
	}
	return nil
}

// workingTree returns the root of the repository to which the folder of the process belongs; the
// folder itself if there is none.
func workingTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, ".git")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return dir, nil
		}
	}
}

// within reports whether a path is in a tree, whatever links lead to either.
func within(tree, path string) bool {
	real := func(path string) string {
		if found, err := filepath.EvalSymlinks(path); err == nil {
			return found
		}
		return path
	}
	rel, err := filepath.Rel(real(tree), real(path))
	return err == nil && filepath.IsLocal(rel)
}

// noOwnCode refuses evaluators and mocks that an uploaded set brings as code.
func noOwnCode(set *eval.Set) error {
	if slices.ContainsFunc(slices.Collect(maps.Values(set.MockedFunctions)), mock.HasCode) {
		return inputError("mockingStrategy: a _target_ is code, and an uploaded eval set brings none")
	}
	i := slices.IndexFunc(set.Evaluators, func(def eval.Definition) bool { return python.Is(def) && def.Dir == "" })
	if i < 0 {
		return nil
	}
	return &InputError{Err: fmt.Errorf(
		"the evaluator %s: an uploaded eval set brings no code; name an evaluator of the service with evaluatorRefs",
		set.Evaluators[i].ID)}
}
