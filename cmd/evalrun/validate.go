package main

import (
	"math"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/tasks"
)

// verdictOfFile is what validate says of one file or task directory.
type verdictOfFile struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	Valid bool   `json:"valid"`
	// Problems are one line each.
	Problems []string `json:"problems"`
	// Task has all values of a task, Gaps what of it cannot be executed here and Notes what is done differently.
	Task  *tasks.Task `json:"task,omitempty"`
	Gaps  []tasks.Gap `json:"gaps,omitempty"`
	Notes []tasks.Gap `json:"notes,omitempty"`

	err      error
	warnings input.Problems
}

func validateCommand(g *globals) *cobra.Command {
	var strict bool
	var check oracleCheck
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Check eval sets, evaluators, tasks and results documents",
		Long: `Check files and task directories without running anything: eval sets, evaluator files, results documents, and task.toml with what belongs
to it. Every problem names file, line, key and what was expected. With --strict, warnings (such as unknown keys) count as problems.

With --oracle the tasks are run after all: the oracle, which is a task's own solution, must get the reward 1 and an agent that does nothing 0.`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths := validatedPaths(args)
			wrong := 0
			verdicts := []verdictOfFile{}
			var dirs []string
			for _, path := range paths {
				v := validateFile(path, strict, check.place.ignoreDockerfile)
				if v.err != nil {
					wrong++
				} else if v.Task != nil {
					dirs = append(dirs, path)
				}
				verdicts = append(verdicts, v)
				if !g.json {
					v.print(cmd, g.quiet)
				}
			}
			if g.json {
				if err := printJSON(cmd, verdicts); err != nil {
					return err
				}
			}
			if wrong > 0 {
				return usageError("not valid: %d of %d files", wrong, len(paths))
			}
			if check.wanted {
				return check.run(cmd, g, dirs)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&strict, "strict", false, "take warnings for errors")
	f.BoolVar(&check.wanted, "oracle", false, "run the tasks with their own solutions, and with an agent that does nothing")
	check.register(cmd)
	return cmd
}

// validatedPaths puts the task directories of datasets and globs in their place. What is none of these is said of it where it is looked at.
func validatedPaths(args []string) (out []string) {
	for _, arg := range args {
		dirs := []string{arg}
		if _, patterns := splitArgs(dirs); patterns != nil {
			if found, err := tasks.Find(patterns); err == nil {
				dirs = found
			}
		}
		out = append(out, dirs...)
	}
	return out
}

// print says what was found: what is wrong and strange on stderr, that it is right on stdout.
func (v verdictOfFile) print(cmd *cobra.Command, quiet bool) {
	if len(v.warnings) > 0 {
		printf(cmd.ErrOrStderr(), "%s\n", v.warnings)
	}
	if v.err != nil {
		printf(cmd.ErrOrStderr(), "%s\n", v.err)
		return
	}
	if quiet {
		return
	}
	printf(stdout(cmd), "%s: %s, ok\n", v.Path, v.Kind)
	for _, gap := range v.Gaps {
		printf(stdout(cmd), "  cannot be run here: %s\n", gap)
	}
	for _, note := range v.Notes {
		printf(stdout(cmd), "  note: %s\n", note)
	}
}

func validateFile(path string, strict, ignoreDockerfile bool) verdictOfFile {
	v := verdictOfFile{Path: path, Problems: []string{}}
	var problems input.Problems
	v.Kind, problems, v.err = v.examine(path, ignoreDockerfile)
	if strict && (v.err == nil || len(problems) > 0) {
		v.err = problems.Err(true)
	} else {
		v.warnings = problems.Warnings()
	}
	v.Valid = v.err == nil
	for _, p := range problems {
		v.Problems = append(v.Problems, p.Error())
	}
	if v.err != nil && len(problems) == 0 {
		v.Problems = append(v.Problems, v.err.Error())
	}
	return v
}

// examine checks a path as what it looks like. The problems hold the warnings too; the error is what is wrong.
func (v *verdictOfFile) examine(path string, ignoreDockerfile bool) (kind string, problems input.Problems, err error) {
	if tasks.IsDir(path) {
		t, problems := tasks.Load(path)
		if err := problems.Err(false); err != nil {
			return "a task", problems, err
		}
		isolated := sandbox.Available() == nil
		v.Task, v.Gaps, v.Notes = t, t.Gaps(tasks.Capabilities{NoNetwork: isolated, FileTree: isolated, IgnoreDockerfile: ignoreDockerfile}), t.Notes()
		return "a task", problems, nil
	}
	if _, patterns := splitArgs([]string{path}); patterns != nil {
		_, err := tasks.Find(patterns)
		return "", nil, err
	}
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return "", nil, unreadable(path, err)
	}
	n, err := input.Parse(path, data)
	if err != nil {
		return "", nil, err
	}
	switch {
	case n.Member("evaluationSetResults") != nil || n.Member("schemaVersion") != nil:
		_, err := report.ReadResults(path)
		return "a results document", nil, err
	case looksLikeEvaluator(n):
		_, problems, err := eval.ParseEvaluator(path, data)
		return "an evaluator", problems, err
	}
	set, problems, err := eval.Load(path)
	if err != nil {
		return "", problems, err
	}
	r := &input.Reader{Problems: problems}
	wait.ParseJobs(r, set.Jobs)
	parseAgents(r, set)
	checkRetry(r, set)
	checkFaults(r, set)
	if dirs, err := tasks.Find(ofSet(r, set)); err == nil {
		for _, dir := range dirs {
			_, problems := tasks.Load(dir)
			r.Problems = append(r.Problems, problems...)
		}
	}
	return "an eval set", r.Problems, r.Problems.Err(false)
}

// looksLikeEvaluator tells an evaluator file from an eval set: only a set has evaluations.
func looksLikeEvaluator(n *input.Node) bool {
	if n.Member("evaluations") != nil {
		return false
	}
	for _, key := range []string{"evaluatorTypeId", "evaluator_type_id", "evaluatorConfig", "evaluator_config", "category"} {
		if n.Member(key) != nil {
			return true
		}
	}
	return strings.HasSuffix(filepath.ToSlash(filepath.Dir(n.File)), "/evaluators")
}
