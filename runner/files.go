package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/input"
)

// Files returns the files that the eval set names and a run of it reads: its data set, its
// evaluators, and the programs of agents, evaluators and jobs as far as they are files. Nothing
// else should be written there. Names that are not files are left out.
func (e *EvalSet) Files() (files []string) {
	set, add := e.req.Set, addFile(&files)
	for _, word := range e.opts.Command {
		add(e.req.WorkDir, word)
	}
	if set.Node == nil { // tasks without an eval set
		return files
	}
	for _, m := range set.Node.Members {
		if m.Key != "evaluations" {
			namedFiles(m.Value, e.req.BaseDir, add)
		}
	}
	evaluators, err := filepath.Glob(filepath.Join(e.req.BaseDir, "..", "evaluators", "*.json"))
	if err != nil {
		return files // the folder's own name is no pattern
	}
	for _, path := range evaluators {
		add("", path)
	}
	return files
}

// Files returns the files that the plan of a run names: its eval set, and the files of
// [EvalSet.Files] except evaluators in files of their own.
func (s *Store) Files(ctx context.Context, runID string) (files []string, err error) {
	plan, err := readPlan(ctx, s.st, runID)
	if err != nil {
		return nil, err
	}
	stored, err := s.st.Plan(ctx, runID)
	if err != nil {
		return nil, err
	}
	n, err := input.ParseJSON("plan", stored.Data)
	if err != nil {
		return nil, fmt.Errorf("the plan of run %s is damaged: %w", runID, err)
	}
	workDir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	base, _ := plan.FindBaseDir(s.st.Dir(), workDir)
	add := addFile(&files)
	add(base, filepath.Base(plan.Set.Path))
	namedFiles(n, base, add)
	return files, nil
}

// addFile returns a function that adds the file of a name in a folder to files, if it is a file and
// not yet among them.
func addFile(files *[]string) func(dir, name string) {
	return func(dir, name string) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, filepath.FromSlash(name))
		}
		if input.IsFile(name) && !slices.Contains(*files, name) {
			*files = append(*files, name)
		}
	}
}

// namedFiles calls add with every string in a value that may be the name of a file, and with the
// folder that it is relative to: the working folder of a command, otherwise the folder of the eval
// set.
func namedFiles(n *input.Node, dir string, add func(dir, name string)) {
	if cwd := n.Member("cwd"); cwd != nil && cwd.Kind == input.String {
		if dir = filepath.Join(dir, filepath.FromSlash(cwd.Text)); filepath.IsAbs(cwd.Text) {
			dir = cwd.Text
		}
	}
	if n.Kind == input.String && n.Text != "" {
		add(dir, n.Text)
	}
	for _, item := range n.Items {
		namedFiles(item, dir, add)
	}
	for _, m := range n.Members {
		namedFiles(m.Value, dir, add)
	}
}
