package runner

import (
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/tasks"
)

// Named is an evaluation that an eval set or a task directory has.
type Named struct{ ID, Name string }

// Evaluations are the evaluations of eval sets and task directories, at most so many. What cannot
// be read has none; the rows of data sets are left out.
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
