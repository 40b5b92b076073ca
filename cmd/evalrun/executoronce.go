package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// onceFlags say what executor --once does about the runs that end while it works.
type onceFlags struct{ exitCode bool }

// onceOnly are the flags of executor that have a meaning only with --once.
var onceOnly = []string{"exit-code", "junit", "summary", "failures", "fail-under", "fail-on-error",
	"fail-on-evaluator-error", "allow-unscored", "allow-not-run"}

func (f *onceFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false,
		"with --once: end with the exit code of the runs that end meanwhile, of several the first in the order of the table")
	titled(cmd.Flags(), titleVerdict)
}

// check refuses flags that have no meaning without --once.
func (f *onceFlags) check(cmd *cobra.Command, once bool) error {
	for _, name := range onceOnly {
		if !once && cmd.Flags().Changed(name) {
			return usageError("--%s has a meaning only with --once", name)
		}
	}
	return nil
}

// worked holds the runs that had an event.
type worked struct {
	mu   sync.Mutex
	runs map[string]bool
}

func (w *worked) event(e schemas.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs == nil {
		w.runs = map[string]bool{}
	}
	w.runs[e.RunID] = true
}

// ended reports the runs that were worked on and are final. It prints the verdict on each of them,
// and writes the files that flags name. The error is the verdict of all runs if --exit-code is set.
func (f *onceFlags) ended(cmd *cobra.Command, g *globals, s *runner.Store, w *workFlags, o runner.RunOptions,
	of *worked) error {
	all, err := s.Runs(cmd.Context())
	if err != nil {
		return err
	}
	slices.Reverse(all) // the oldest first
	list := []runJSON{}
	var documents [][]byte
	var verdicts []error
	for _, run := range all {
		if !run.Final || !of.runs[run.ID] {
			continue
		}
		err := s.ReportUnder(cmd.Context(), run.ID, o.Variables, o.FailUnder, func(r *runner.Report) error {
			j, err := r.Judge(o.Accept)
			if err != nil {
				return err
			}
			r.Judgement, r.Accept, r.Failures = &j, o.Accept, w.failures.n
			one := newRunJSON(run)
			one.Verdict, one.Headline = j.Verdict.String(), j.Headline()
			list, verdicts = append(list, one), append(verdicts, verdictError(j, ""))
			if !g.json && !g.quiet {
				printf(cmd.ErrOrStderr(), "run %s of %s: %s\n", run.ID, redact.Line(run.EvaluationSetName), j.Headline())
			}
			if w.junit != "" {
				var document bytes.Buffer
				if err := r.Write(&document, "junit"); err != nil {
					return err
				}
				documents = append(documents, document.Bytes())
			}
			if w.summary != "" {
				return addSummary(w.summary, run.ID, func(to io.Writer) error { return r.Write(to, "markdown") })
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if g.json {
		if err := printJSON(cmd, list); err != nil {
			return err
		}
	}
	if w.junit != "" {
		if err := writeFlag("junit", w.junit, func(to io.Writer) error {
			return report.MergeJUnit(to, documents)
		}); err != nil {
			return err
		}
	}
	verdict := errors.Join(verdicts...)
	if !f.exitCode || verdict == nil {
		return nil
	}
	return &exitError{codeOf(verdict), verdict}
}
