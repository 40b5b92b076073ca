package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/doctor"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store/backend"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/runner"
)

func doctorCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [NAME...]",
		Short: "Say what this machine can do for evalrun, and what mends what it lacks",
		Long: `Look for what evalrun can use here: the store and its disk, the clock, isolations, programs that
build images, Python, the agents of the registry with their versions, and the variables with keys,
of which only the names are printed. What is missing is no error: hardly anybody needs everything.

The exit code is 2 if something is broken that should work on every machine (store, free space,
clock), or if something is missing that was asked for by its NAME, such as bwrap or "agent claude".
Nothing is changed.`,
		Example: `  evalrun doctor
  evalrun doctor bwrap python "agent claude" && evalrun run tasks/`,
		Args: between(0, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := doctor.Options{Store: g.storeDir(), Built: buildInfo().Date}
			if o.Store == "" {
				o.Store = runner.FindStore()
			}
			place := o.Store
			o.Open = func() (string, error) { return g.examineStore(cmd, place) }
			o.Files = func(ctx context.Context) (string, error) { return g.examineFiles(ctx, cmd, place) }
			o.Isolation = func(ctx context.Context) (string, error) {
				chosen, why, err := runner.ChooseIsolation(ctx)
				if why != "" {
					chosen += ", because not " + why
				}
				return chosen, err
			}
			o.Workers = func(context.Context) (string, error) { return g.examineWorkers(cmd, place) }
			if !backend.IsFolder(place) {
				o.Store = workspace.StateDir() // where its files are
			}
			for _, name := range args {
				if known := o.Names(); !slices.Contains(known, name) {
					return usageError("there is no check %q%s; there are: %s", name, input.Suggest(name, known),
						strings.Join(known, ", "))
				}
			}
			return printFindings(cmd, g, doctor.Examine(cmd.Context(), o, args...), len(args) > 0)
		},
	}
}

// examineFiles keeps a file where suspended rollouts have theirs.
func (g *globals) examineFiles(ctx context.Context, cmd *cobra.Command, place string) (found string, err error) {
	o, err := g.openOptions(cmd)
	if err != nil {
		return "", err
	}
	s, err := runner.Open(place, o)
	if errors.Is(err, runner.ErrNoStore) {
		return "there is no store yet", nil
	} else if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.CheckFiles(ctx)
}

// examineStore opens the store, if there is one. Otherwise it finds out whether one can be made.
func (g *globals) examineStore(cmd *cobra.Command, dir string) (found string, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && backend.IsFolder(dir) {
		up := filepath.Dir(dir)
		if err := unix.Access(up, unix.W_OK); err != nil {
			return "", fmt.Errorf("there is none in %s, and none can be made there: %w", dir, err)
		}
		return "none yet; the first run makes " + dir, nil
	}
	err = g.withStore(cmd, false, func(s *runner.Store) error {
		runs, err := s.Runs(cmd.Context())
		if err != nil {
			return err
		}
		about, err := s.About(cmd.Context())
		if found = s.Name() + ", " + counted(len(runs), "run"); about != "" {
			found += ": " + about
		}
		return err
	})
	if errors.Is(err, runner.ErrNoStore) && !backend.IsFolder(dir) {
		return "none yet; the first run makes it in " + backend.Name(dir), nil
	}
	return found, err
}

// examineWorkers says who looks after all runs of the store. The error says what nobody can work on.
func (g *globals) examineWorkers(cmd *cobra.Command, dir string) (found string, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && backend.IsFolder(dir) {
		return "no store yet", nil
	}
	var force runner.Workforce
	if err = g.withStore(cmd, false, func(s *runner.Store) error {
		force, err = s.Workforce(cmd.Context())
		return err
	}); err != nil {
		return "no store that could be asked", nil //nolint:nilerr // the check of the store says why
	}
	var workers, lacks []string
	for _, w := range force.Workers {
		workers = append(workers, strings.TrimSuffix(w.Name+" with "+strings.Join(w.Tags, ","), " with "))
		for _, why := range w.Lacks {
			lacks = append(lacks, w.Name+": "+why)
		}
	}
	for _, q := range force.Queues {
		if slices.ContainsFunc(force.Unmet, func(tags []string) bool { return slices.Equal(tags, q.Tags) }) {
			lacks = append(lacks, fmt.Sprintf("no worker has the tags %s, for which %s wait",
				strings.Join(q.Tags, ","), counted(q.Ready+q.Limited, "rollout")))
		}
	}
	if found = "none; each run is worked on by its own process"; len(workers) > 0 {
		found = counted(len(workers), "worker") + ": " + strings.Join(workers, "; ")
	}
	if len(lacks) > 0 {
		return "", fmt.Errorf("%s. There are: %s", strings.Join(lacks, ". "), found)
	}
	return found, nil
}

func printFindings(cmd *cobra.Command, g *globals, findings []doctor.Finding, asked bool) error {
	var wrong []string
	for _, f := range findings {
		if f.Status == doctor.Broken || asked && f.Status != doctor.OK {
			wrong = append(wrong, f.Name)
		}
	}
	if g.json {
		if err := printJSON(cmd, findings); err != nil {
			return err
		}
	} else if !g.quiet {
		for _, f := range findings {
			printf(stdout(cmd), "%-8s %-22s %s\n", f.Status, f.Name, redact.Line(f.Found))
			for _, line := range []struct{ label, text string }{{"without it", f.Means}, {"mend it", f.Mend}} {
				if line.text != "" {
					printf(stdout(cmd), "%-31s %s: %s\n", "", line.label, line.text)
				}
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return usageError("this machine lacks: %s", strings.Join(wrong, ", "))
}
