package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/input"
	"github.com/evalrun/evalrun/report"
	"github.com/evalrun/evalrun/trigger"
)

func validateCommand(g *globals) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Check eval sets, evaluators and results documents",
		Long: `Check files without running anything: eval sets, evaluator files and results documents. Every problem names file, line, key and what
was expected. With --strict, warnings (such as unknown keys) count as problems.`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			wrong := 0
			for _, path := range args {
				kind, problems, err := validateFile(path)
				if strict && (err == nil || len(problems) > 0) {
					err = problems.Err(true)
				} else if warnings := problems.Warnings(); len(warnings) > 0 {
					printf(cmd.ErrOrStderr(), "%s\n", warnings)
				}
				if err != nil {
					printf(cmd.ErrOrStderr(), "%s\n", err)
					wrong++
					continue
				}
				if !g.quiet {
					printf(stdout(cmd), "%s: %s, ok\n", path, kind)
				}
			}
			if wrong > 0 {
				return usageError("not valid: %d of %d files", wrong, len(args))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	return cmd
}

// validateFile checks one file as what it looks like. The problems hold the warnings too; the error is what is wrong.
func validateFile(path string) (kind string, problems input.Problems, err error) {
	data, err := os.ReadFile(path)
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
	trigger.ParseJobs(r, set.Jobs)
	parseAgents(r, set)
	checkRetry(r, set)
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
