package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/setfiles"
	"github.com/evalrun/evalrun/internal/store"
)

// keepFolder keeps files of the eval set's folder with a plan, if the store takes files. notes say
// what is not kept.
func (s *Store) keepFolder(ctx context.Context, plan *store.Plan, req plans.Request) (notes []string, err error) {
	if s.st.KeepsFiles() == 0 || runtime.GOOS != "linux" { // as snapshots need it
		return nil, nil
	}
	named, err := filesOfPlan(*plan, req)
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir() // where there is none, no folder is it
	k, blocks, notes, err := setfiles.Folder{
		Dir: req.BaseDir, Whole: req.Set.Path != "" && req.BaseDir != home && filepath.Dir(req.BaseDir) != req.BaseDir,
		Named: named, Without: s.Dir(),
		MostFiles: setfiles.MostFiles, MostBytes: min(setfiles.MostBytes, s.st.KeepsFiles()),
	}.Keep(ctx, s.Dir(), s.st)
	if err != nil || k == nil {
		return notes, err
	}
	return notes, plans.KeepFolder(plan, k, blocks)
}

// filesOfPlan returns the files that agents, evaluators, jobs and servers of a plan name, those that
// agents send to models, and its task directories. Files that the command line has named, such as
// those of variables, are none of them.
func filesOfPlan(plan store.Plan, req plans.Request) (names []string, err error) {
	n, err := input.ParseJSON("plan", plan.Data)
	if err != nil {
		return nil, fmt.Errorf("the plan of run %s cannot be read again: %w", plan.RunID, err)
	}
	add := addFile(&names)
	for _, key := range []string{"agents", "jobs", "notify", "mcpServers"} {
		if named := n.Member(key); named != nil {
			namedFiles(named, req.BaseDir, add)
		}
	}
	if evaluators := n.Member("set").Member("evaluators"); evaluators != nil {
		namedFiles(evaluators, req.BaseDir, add)
	}
	for _, e := range plan.Evaluations {
		var one eval.Evaluation
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return nil, err
		}
		if one.Task != nil {
			names = append(names, one.Task.Dir)
		}
		for _, a := range req.Agents {
			sent, _ := a.Sends(one.Inputs, req.BaseDir) // what cannot be sent was found before
			names = append(names, sent...)
		}
	}
	return names, nil
}
