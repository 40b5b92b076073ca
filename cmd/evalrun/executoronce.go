package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// onceFlags say what executor --once does about the runs that end while it works.
type onceFlags struct {
	exitCode bool
	maxTime  time.Duration
}

// onceOnly are the flags of executor that have a meaning only with --once.
var onceOnly = []string{"exit-code", "max-time", "junit", "summary", "failures", "fail-under", "fail-on-error",
	"fail-on-evaluator-error", "allow-unscored", "allow-not-run"}

func (f *onceFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false,
		"with --once: end with the exit code of the runs that end meanwhile, of several the first in the order of the table")
	titled(cmd.Flags(), titleVerdict)
	cmd.Flags().DurationVar(&f.maxTime, "max-time", 0, "with --once: ask only what is due, and work for at most `DURATION`")
}

// check refuses flags that have no meaning without --once.
func (f *onceFlags) check(cmd *cobra.Command, once bool) error {
	for _, name := range onceOnly {
		if !once && cmd.Flags().Changed(name) {
			return usageError("--%s has a meaning only with --once", name)
		}
	}
	if cmd.Flags().Changed("max-time") && f.maxTime <= 0 {
		return usageError("--max-time: expected more than 0, such as 50s; got %v", f.maxTime)
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
// and writes the files that flags name. With --max-time it also says what is left. The error is the
// verdict of all runs if --exit-code is set.
func (f *onceFlags) ended(cmd *cobra.Command, g *globals, s *runner.Store, w *workFlags, o runner.RunOptions,
	of *worked, left runner.Ticked) error {
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
		var judged runner.Judgement
		var document bytes.Buffer
		err := s.ReportUnder(cmd.Context(), run.ID, o.Variables, o.FailUnder, func(r *runner.Report) error {
			j, err := r.Judge(o.Accept)
			if err != nil {
				return err
			}
			r.Judgement, r.Accept, r.Failures = &j, o.Accept, w.failures.n
			judged = j
			document.Reset()
			if w.junit != "" {
				if err := r.Write(&document, "junit"); err != nil {
					return err
				}
			}
			if w.summary != "" {
				return addSummary(w.summary, run.ID, func(to io.Writer) error { return r.Write(to, "markdown") })
			}
			return nil
		})
		if err != nil {
			return err
		}
		one := newRunJSON(run)
		one.Verdict, one.Headline = judged.Verdict.String(), judged.Headline()
		list, verdicts = append(list, one), append(verdicts, verdictError(judged, ""))
		if !g.json && !g.quiet {
			printf(cmd.ErrOrStderr(), "run %s of %s: %s\n", run.ID, redact.Line(run.EvaluationSetName), judged.Headline())
		}
		if w.junit != "" {
			documents = append(documents, document.Bytes())
		}
	}
	if f.maxTime > 0 && !g.json && !g.quiet {
		printf(cmd.ErrOrStderr(), "%s\n", nextCall(left, time.Now()))
	}
	if g.json {
		var document any = list
		if f.maxTime > 0 {
			document = tickJSON{list, left}
		}
		if err := printJSON(cmd, document); err != nil {
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

// tickJSON is what executor --once --max-time prints with --json.
type tickJSON struct {
	// Runs are those that have ended meanwhile.
	Runs []runJSON `json:"runs"`
	runner.Ticked
}

// nextCall says when the next call of executor --once --max-time is worth it.
func nextCall(left runner.Ticked, now time.Time) string {
	switch {
	case left.Next.IsZero():
		return "nothing is due: the next call is worth it when something was delivered or started"
	case left.Next.After(now):
		return "the next call is worth it at " + left.Next.Local().Format(time.DateTime)
	default:
		return "the next call is worth it at once"
	}
}
