package main

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/calibrate"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

// calibrateFlags are the flags of calibrate.
type calibrateFlags struct {
	labels, raters string
	evaluators     []string
	pass, minKappa string
	resamples      int
	seed           uint64
	format, output string
}

func calibrateCommand(g *globals) *cobra.Command {
	var f calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate RUN|RESULTS.json --labels FILE | --raters EVALUATOR",
		Short: "Compare judges with people's labels: how well they agree, and where they do not",
		Long: `Compare what judges said of the rollouts of a run with what people said of them. A label is a row of
a CSV, JSON Lines or Parquet file with the columns evaluationId and label (0, 1, true, false or a
score between), and where they are needed agent, epoch and rater. --raters takes the ratings of
people whom an evaluator of the run has asked. Labels that belong to nothing in the run are named
and left out.

--min-kappa is a gate on each judge, met by its 95 % interval: exit code 0 if it is met, 1 if it is
not, 5 if the interval allows both.`,
		Example: `  evalrun calibrate latest --labels labels.csv
  evalrun calibrate results.json --labels labels.csv --evaluator tone --min-kappa 0.6
  evalrun calibrate latest --raters people`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, g, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.labels, "labels", "", "the labels of people, a CSV, JSON Lines or Parquet `FILE`")
	fl.StringVar(&f.raters, "raters", "", "take for labels what people said whom the `EVALUATOR` has asked")
	fl.StringArrayVar(&f.evaluators, "evaluator", nil,
		"calibrate the evaluator `ID` (repeatable; default: those that have asked models, or else all)")
	fl.StringVar(&f.pass, "pass", "", "the least `SCORE` that passes (default: that of the run)")
	fl.StringVar(&f.minKappa, "min-kappa", "", "gate: kappa, or of scores the weighted one, is at least `K`")
	fl.IntVar(&f.resamples, "bootstrap", stats.DefaultSettings.Resamples,
		"take `N` bootstrap samples; 0 for none, and no intervals of coefficients")
	fl.Uint64Var(&f.seed, "seed", stats.DefaultSettings.Seed, "the seed `N` of all random numbers")
	fl.StringVar(&f.format, "format", "text", "`FORMAT`: "+strings.Join(runner.ComparisonFormats, ", "))
	fl.StringVarP(&f.output, "output", "o", "", "write to `FILE` instead of stdout")
	return cmd
}

func (f *calibrateFlags) run(cmd *cobra.Command, g *globals, name string) error {
	o, err := f.options(g)
	if err := errors.Join(err, refuseInput("output", f.output, name, f.labels)); err != nil {
		return err
	}
	var d *calibrate.Document
	calibrated := func(r *runner.Report) (err error) {
		d, err = r.Calibrate(o)
		return err
	}
	if input.IsFile(name) {
		err = runner.OpenReport(name, calibrated)
	} else {
		err = g.withReport(cmd, name, calibrated)
	}
	var noPairs error
	if errors.Is(err, calibrate.ErrNoPairs) {
		noPairs = err
	} else if err != nil {
		return err
	}
	write := func(w io.Writer) error { return runner.WriteCalibration(w, d, f.format) }
	switch err = writeOrPrint(cmd, g, f.output, write); {
	case err != nil:
		return err
	case noPairs != nil:
		return &exitError{exitFaulted, noPairs}
	}
	verdict, reason := runner.VerdictOfCalibration(d)
	return verdictError(runner.Judgement{Verdict: verdict, Reason: reason}, "")
}

// options returns the options that the flags give, checked before anything is read.
func (f *calibrateFlags) options(g *globals) (o runner.CalibrateOptions, err error) {
	if g.json {
		f.format = "json"
	}
	switch {
	case (f.labels == "") == (f.raters == ""):
		return o, usageError("expected --labels FILE or --raters EVALUATOR")
	case !slices.Contains(runner.ComparisonFormats, f.format):
		return o, usageError("--format: expected one of %s, got %q%s", strings.Join(runner.ComparisonFormats, ", "), f.format,
			input.Suggest(f.format, runner.ComparisonFormats))
	case f.resamples < 0 || f.resamples > 1_000_000:
		return o, usageError("--bootstrap: expected a whole number from 0 to 1000000, got %d", f.resamples)
	}
	o = runner.CalibrateOptions{Labels: f.labels, Raters: f.raters, Evaluators: f.evaluators}
	o.Settings = stats.Settings{Resamples: f.resamples, Seed: f.seed}
	var errs [2]error
	o.Pass, errs[0] = share("pass", f.pass)
	o.MinKappa, errs[1] = share("min-kappa", f.minKappa)
	return o, errors.Join(errs[:]...)
}
