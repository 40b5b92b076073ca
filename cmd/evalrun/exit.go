package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/runner"
)

// The exit codes. If several apply, the first in this order is taken: 4, 2, 130, 75, 3, 1, 5, 0.
const (
	exitOK          = 0   // everything finished, and no threshold was missed
	exitThreshold   = 1   // a threshold was not met
	exitUsage       = 2   // wrong usage, or an invalid input file
	exitFaulted     = 3   // faulted rollouts, failed or unrun evaluators, or unscored evaluations, beyond what is allowed
	exitInternal    = 4   // evalrun itself failed
	exitUndecided   = 5   // missing scores, or a wide interval, leave a threshold undecided
	exitSuspended   = 75  // suspended rollouts remain
	exitInterrupted = 130 // interrupted; the run can be resumed
)

const exitCodeHelp = `Exit codes:
  0    everything finished, thresholds met; or there is none, and so no verdict: finished
  1    a threshold was not met
  2    wrong usage, or an invalid input file (the message names file, line and key)
  3    rollouts faulted (--fail-on-error), evaluators failed (--fail-on-evaluator-error) or were
       not run (--allow-not-run), or evaluations could not be scored (--allow-unscored), beyond what
       is allowed
  4    evalrun itself failed
  5    undecided: because of missing scores, or a wide interval, a threshold may be met or not
  75   suspended rollouts remain: resume later (--allow-suspended judges the thresholds anyway)
  130  interrupted (SIGINT, SIGTERM); the run can be resumed`

// verdictError returns the error of a verdict, or nil if its exit code is 0. resume is the command
// that resumes the run.
func verdictError(r runner.Judgement, resume string) error {
	switch {
	case r.Verdict.ExitCode() == exitOK:
		return nil
	case r.Verdict == runner.Interrupted:
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; go on with: %s", resume)}
	case r.Reason == "":
		return &exitError{r.Verdict.ExitCode(), nil}
	}
	return &exitError{r.Verdict.ExitCode(), errors.New(r.Reason)}
}

// exitError is an error with the exit code that it means. An error without one is about usage.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// internal marks an error as one of evalrun itself or of the machine, unless it already has an exit
// code or is about the input.
func internal(err error) error {
	var marked *exitError
	var input *runner.InputError
	if err == nil || errors.As(err, &marked) || errors.As(err, &input) {
		return err
	}
	return &exitError{exitInternal, err}
}

// codeOf returns the exit code of an error. Of several joined errors, the first in the order of the
// table counts. An error without a code comes from cobra and is about usage.
func codeOf(err error) int {
	var codes []int
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // the tree is walked by hand: errors.As stops at the first
		case *exitError:
			codes = append(codes, e.code)
		case *runner.InputError:
			codes = append(codes, exitUsage)
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				walk(one)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	for _, code := range []int{exitInternal, exitUsage, exitInterrupted, exitSuspended, exitFaulted, exitThreshold,
		exitUndecided} {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return exitUsage
}
