package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
)

// removeFlags are the flags of the commands that remove runs.
type removeFlags struct {
	// open also removes runs that are not final, and cancels them first.
	open   bool
	dryRun bool
}

func rmCommand(g *globals) *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "rm RUN...",
		Short: "Remove runs from the store, with all their files",
		Long: `Remove runs from the store with everything that belongs to them: results, events, logs, workspaces. A run is named by its id or
a unique beginning of it. A run that is not final is refused, unless --force is given: then it is cancelled first. A run that another
process works on is always refused. Results documents that were written elsewhere (-o) stay.`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(func(s *store.SQLite) error {
				all, err := s.Runs(cmd.Context())
				if err != nil {
					return internal(err)
				}
				var chosen []store.Run
				for _, name := range args {
					id, err := runByPrefix(cmd.Context(), s, name)
					if err != nil {
						return err
					}
					if slices.ContainsFunc(chosen, func(r store.Run) bool { return r.ID == id }) {
						continue
					}
					run := all[slices.IndexFunc(all, func(r store.Run) bool { return r.ID == id })]
					if !run.Final() && !f.open {
						return usageError("run %s is not final (%s); cancel it first (evalrun cancel %s), or give --force", id, openCounts(run.Counts), shellQuote(id))
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
		Long: `Remove the runs that have been final for longer than --older, apart from the newest --keep runs of the store. With only one of
the two flags that one alone decides. Runs that are not final stay, unless --open is given: then they are cancelled and removed if they
were created longer ago than --older. A run that another process works on always stays.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			byAge, byCount := cmd.Flags().Changed("older"), cmd.Flags().Changed("keep")
			switch {
			case !byAge && !byCount:
				return usageError("prune: say what is to be removed, with --older, --keep or both")
			case keep < 0:
				return usageError("--keep: expected a whole number from 0, got %d", keep)
			}
			return g.withStore(func(s *store.SQLite) error {
				runs, err := s.Runs(cmd.Context()) // the newest first
				if err != nil {
					return internal(err)
				}
				before := time.Now().Add(-time.Duration(older))
				return g.remove(cmd, s, slices.DeleteFunc(runs[min(keep, len(runs)):], func(r store.Run) bool {
					since := r.FinishedAt
					if !r.Final() {
						since = r.CreatedAt
					}
					return !r.Final() && !f.open || byAge && since.After(before)
				}), f)
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

// remove removes runs, and says of each whether it was. What another process works on stays.
func (g *globals) remove(cmd *cobra.Command, s *store.SQLite, runs []store.Run, f removeFlags) error {
	removed := []runJSON{}
	var problems []error
	active, err := s.Activity(cmd.Context())
	if err != nil {
		return internal(err)
	}
	for _, run := range runs {
		if active[run.ID].Held > 0 {
			problems = append(problems, usageError("run %s: another process works on it; end that first", run.ID))
			continue
		}
		if !f.dryRun {
			if err := g.removeOne(cmd.Context(), cmd, s, run); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		removed = append(removed, newRunJSON(run))
		if g.json || g.quiet {
			continue
		}
		what := "removed"
		if f.dryRun {
			what = "would remove"
		}
		printf(stdout(cmd), "%s %s  %s  %s  %s\n", what, run.ID, report.StatusOf(run.Counts), run.CreatedAt.Local().Format(time.DateTime), redact.Line(run.EvaluationSetName))
	}
	if g.json {
		problems = append(problems, printJSON(cmd, removed))
	} else if len(runs) == 0 && !g.quiet {
		printf(stdout(cmd), "nothing to remove\n")
	}
	return errors.Join(problems...)
}

func (g *globals) removeOne(ctx context.Context, cmd *cobra.Command, s *store.SQLite, run store.Run) error {
	if !run.Final() {
		if _, err := s.Cancel(ctx, run.ID); err != nil {
			return internal(err)
		}
		if err := g.settle(ctx, cmd, s, run.ID, workFlags{concurrency: 1}); err != nil {
			return err
		}
	}
	err := engine.Remove(ctx, s, run.ID)
	if errors.Is(err, store.ErrNotFinal) {
		return usageError("run %s: another process has begun to work on it; it is cancelled, so try again when that has ended", run.ID)
	}
	return internal(err)
}

// openCounts says what of a run is not final.
func openCounts(c store.Counts) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Running, "running"}, {c.Suspended, "suspended"}, {c.Pending, "pending"}, {c.Evaluating, "being evaluated"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}
