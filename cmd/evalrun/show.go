package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

func showCommand(g *globals) *cobra.Command {
	var failures failuresFlag
	cmd := &cobra.Command{
		Use:   "show RUN|RESULTS.json [EVALUATION|ROLLOUT]",
		Short: "Show a run and why rollouts failed, or one of its rollouts",
		Long: `Show a run as it stands in the store, or a results document, whose store need not be there: its
table and why rollouts have failed, or with --json its results document. With the id of an
evaluation, or that of a rollout or a beginning of it, everything about these rollouts: scores, what
was expected and what came, input, output, times and files.`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(r *runner.Report, s *runner.Store, name string) error {
				present(r, s, name, stdout(cmd))
				r.Failures = failures.n
				switch {
				case len(args) == 2:
					return durable.WriteWhole(stdout(cmd), func(w io.Writer) error { return g.showRollouts(w, r, args[1]) })
				case g.json:
					return durable.WriteWhole(stdout(cmd), func(w io.Writer) error { return r.Write(w, "json") })
				}
				return durable.WriteWhole(stdout(cmd), func(w io.Writer) error { return r.Write(w, "table") })
			}
			if input.IsFile(args[0]) {
				return internal(runner.OpenReport(args[0], func(r *runner.Report) error { return show(r, nil, args[0]) }))
			}
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				err := s.Report(cmd.Context(), run.ID, runner.Variables{}, func(r *runner.Report) error {
					if run.Interrupted && !r.Head().Final {
						j := verdict.Interrupt()
						r.Judgement, r.Last = &j, "no process works on it; to resume: "+resumeLine(s, run.ID)
					}
					return show(r, s, run.ID)
				})
				if err != nil || g.json || len(args) == 2 {
					return err
				}
				return showUndelivered(cmd, s, run.ID)
			})
		},
	}
	failures.register(cmd)
	return cmd
}

// showUndelivered lists the notifications of a run that were not delivered.
func showUndelivered(cmd *cobra.Command, s *runner.Store, runID string) error {
	all, err := s.Undelivered(cmd.Context(), runID)
	if err != nil {
		return err
	}
	for _, n := range all {
		text, next := "not tried yet", "given up"
		if n.LastError != "" {
			text = n.LastError
		}
		if !n.Next.IsZero() {
			next = "tried again at " + n.Next.Local().Format(time.DateTime)
		}
		printf(stdout(cmd), "not notified of %s: %s (attempts: %d; %s)\n", n.Event, text, n.Attempts, next)
	}
	return nil
}

// showRollouts shows the rollouts that a name refers to, for people or as they are in the results
// document.
func (g *globals) showRollouts(w io.Writer, r *runner.Report, name string) (err error) {
	n := 0
	isNamed, err := named(r, name)
	switch {
	case err != nil:
	case g.json:
		err = r.Rollouts(func(o *schemas.Rollout) error {
			if !isNamed(o) {
				return nil
			}
			n++
			return writeJSON(w, o)
		})
	default:
		n, err = r.WriteRollouts(w, isNamed)
	}
	if err == nil && n == 0 {
		return noRollout(r, name)
	}
	return err
}

// named returns a function that reports whether a name refers to a rollout: to those of the
// evaluation with this id or, if there is none, to those whose own ids begin with it. Evaluations
// are often called 1 or a, with which ids of rollouts begin by chance.
func named(r *runner.Report, name string) (func(*schemas.Rollout) bool, error) {
	isEvaluation := false
	err := r.Rollouts(func(o *schemas.Rollout) error {
		isEvaluation = isEvaluation || o.EvaluationID == name
		return nil
	})
	return func(o *schemas.Rollout) bool {
		if isEvaluation {
			return o.EvaluationID == name
		}
		return name != "" && strings.HasPrefix(o.RolloutID, name)
	}, err
}

// noRollout is the error for a name that refers to no rollout. It says which names do: people see
// the names of evaluations, and have to give ids.
func noRollout(r *runner.Report, name string) error {
	var ids []string
	hint := ""
	seen := map[string]bool{}
	if err := r.Rollouts(func(o *schemas.Rollout) error {
		if !seen[o.EvaluationID] {
			seen[o.EvaluationID], ids = true, append(ids, o.EvaluationID)
		}
		if strings.EqualFold(o.EvaluationName, name) {
			hint = fmt.Sprintf("; did you mean %q?", o.EvaluationID)
		}
		return nil
	}); err != nil {
		return err
	}
	const most = 8
	if hint = cmp.Or(hint, input.Suggest(name, ids)); hint == "" {
		hint = "; its evaluations are " + strings.Join(ids[:min(len(ids), most)], ", ")
		if more := len(ids) - most; more > 0 {
			hint += fmt.Sprintf(" and %d more", more)
		}
	}
	return usageError("run %s has no rollout %q%s", r.Head().RunID, name, hint)
}
