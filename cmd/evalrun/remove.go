package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// removeFlags are the flags of the commands that remove runs.
type removeFlags struct {
	// open also removes runs that are not final. They are cancelled first.
	open   bool
	dryRun bool
}

func rmCommand(g *globals) *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "rm RUN...",
		Short: "Remove runs from the store, with all their files",
		Long: `Remove runs from the store with everything that belongs to them: results, events, logs, workspaces.
A run is named by its id, a unique beginning or end of it, or latest. A run that is not final is
refused, unless --force is given: then it is cancelled first. A run that another process works on is
always refused. Results documents that were written elsewhere (-o) stay.`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var chosen []runner.Run
				for _, name := range args {
					run, err := s.Find(cmd.Context(), name)
					if err != nil {
						return err
					}
					if slices.ContainsFunc(chosen, func(r runner.Run) bool { return r.ID == run.ID }) {
						continue
					}
					if !run.Final && !f.open {
						return usageError("run %s is not final (%s); cancel it first (evalrun cancel %s), or give --force", run.ID,
							openCounts(run.Counts), shellQuote(run.ID))
					}
					chosen = append(chosen, run)
				}
				return g.remove(cmd, s, chosen, f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.open, "force", false, "cancel what is not final, and remove it as well")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be removed")
	return cmd
}

func pruneCommand(g *globals) *cobra.Command {
	var f removeFlags
	var older age
	var keep int
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove old runs from the store (--older 30d --keep 20)",
		Long: `Remove the runs that have been final for longer than --older, apart from the newest --keep runs of
the store. With only one of the two flags that one alone decides. Runs that are not final stay,
unless --open is given: then they are cancelled and removed if they were created longer ago than
--older. A run that another process works on always stays.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			byAge, byCount := cmd.Flags().Changed("older"), cmd.Flags().Changed("keep")
			switch {
			case !byAge && !byCount:
				return usageError("prune: say what is to be removed, with --older, --keep or both")
			case keep < 0:
				return usageError("--keep: expected a whole number from 0, got %d", keep)
			}
			return g.withStore(cmd, false, func(s *runner.Store) error {
				old := runner.Old{Keep: keep, Open: f.open}
				if byAge {
					old.Before = time.Now().Add(-time.Duration(older))
				}
				runs, err := s.OldRuns(cmd.Context(), old)
				if err != nil {
					return err
				}
				return g.remove(cmd, s, runs, f)
			})
		},
	}
	cmd.Flags().Var(&older, "older", "remove what has been final for longer than `AGE` (30d, 2w, 12h)")
	cmd.Flags().IntVar(&keep, "keep", 0, "keep the newest `N` runs, however old they are")
	cmd.Flags().BoolVar(&f.open, "open", false, "also remove runs that are not final; they are cancelled first")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be removed")
	return cmd
}

// age is a duration that may be given in days and weeks.
type age time.Duration

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Type() string { return "age" }

func (a *age) Set(text string) error {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(number, 10, 16)
			if err == nil && n > uint64(math.MaxInt64/length) {
				err = errors.New("it is too long")
			}
			*a = age(time.Duration(n) * length)
			return err
		}
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	*a = age(d)
	return err
}

func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError("%s: expected the ids of runs; evalrun list shows them", cmd.Name())
	}
	return nil
}

// remove removes runs and prints the outcome of each. Runs that another process works on stay.
func (g *globals) remove(cmd *cobra.Command, s *runner.Store, runs []runner.Run, f removeFlags) error {
	removed := []runJSON{}
	var problems []error
	for _, run := range runs {
		if err := s.Remove(cmd.Context(), run, f.dryRun); err != nil {
			problems = append(problems, internal(err))
			continue
		}
		removed = append(removed, newRunJSON(run))
		if g.json || g.quiet {
			continue
		}
		what := "removed"
		if f.dryRun {
			what = "would remove"
		}
		printf(stdout(cmd), "%s %s  %s  %s  %s\n", what, run.ID, run.Status, run.CreatedAt.Local().Format(time.DateTime),
			redact.Line(run.EvaluationSetName))
	}
	if g.json {
		problems = append(problems, printJSON(cmd, removed))
	} else if len(runs) == 0 && !g.quiet {
		printf(stdout(cmd), "nothing to remove\n")
	}
	return errors.Join(problems...)
}

// openCounts lists the rollouts of a run that are not final, by state.
func openCounts(c runner.Counts) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Running, "running"}, {c.Suspended, "suspended"}, {c.Pending, "pending"}, {c.Evaluating, "being evaluated"},
		{c.Scoring, "waiting for a score"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}
