package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/runner"
)

func TestExitCodeOfSeveralErrors(t *testing.T) {
	suspended, faulted := &exitError{exitSuspended, nil}, &exitError{exitFaulted, errors.New("1 of 2 rollouts faulted")}
	full := errors.New("the disk is full")
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"what cobra says":                        {errors.New(`unknown command "x"`), exitUsage},
		"one":                                    {suspended, exitSuspended},
		"wrapped":                                {fmt.Errorf("resuming: %w", faulted), exitFaulted},
		"evalrun's own failure comes first":      {errors.Join(suspended, internal(full)), exitInternal},
		"usage comes before suspended":           {errors.Join(suspended, usageError("wrong")), exitUsage},
		"suspended comes before faulted":         {errors.Join(faulted, suspended), exitSuspended},
		"a usage error stays one":                {internal(usageError("wrong")), exitUsage},
		"a failure joined with another stays so": {internal(errors.Join(full, full)), exitInternal},
	} {
		if got := codeOf(test.err); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}

// Every verdict has an exit code, and no two have the same.
func TestVerdictsHaveExitCodes(t *testing.T) {
	seen := map[int]runner.Verdict{}
	for v := runner.Passed; v <= runner.Interrupted; v++ {
		code := v.ExitCode()
		if other, twice := seen[code]; twice {
			t.Errorf("%v has the code %d, as %v has", v, code, other)
		}
		seen[code] = v
		got := codeOf(verdictError(runner.Judgement{Verdict: v}, "evalrun resume r"))
		if v != runner.Passed && got != code {
			t.Errorf("%v ends with %d, expected %d", v, got, code)
		}
	}
	if err := verdictError(runner.Judgement{}, ""); err != nil {
		t.Errorf("a run that has passed is the error %v", err)
	}
	if code := codeOf(internal(&runner.InputError{Err: errors.New("wrong")})); code != exitUsage {
		t.Errorf("a wrong input ends with %d", code)
	}
}
