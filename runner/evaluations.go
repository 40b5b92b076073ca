package runner

import (
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/tasks"
)

// Named is an evaluation of an eval set or a task directory.
type Named struct{ ID, Name string }

// Evaluations returns the evaluations of eval sets and task directories, at most so many.
// Unreadable files have none, and the rows of data sets are left out.
func Evaluations(paths []string, most int) (out []Named) {
	sets, patterns := splitPaths(paths)
	for _, path := range sets {
		set, _, err := evalset.Load(path)
		if err != nil {
			continue
		}
		for _, e := range set.Evaluations {
			out = append(out, Named{e.ID, e.Name})
		}
	}
	if dirs, err := tasks.Find(patterns); err == nil {
		for _, dir := range dirs[:min(len(dirs), most)] {
			if t, problems := tasks.Load(dir); problems.Err(false) == nil {
				out = append(out, Named{t.Name, t.Name})
			}
		}
	}
	return out[:min(len(out), most)]
}
