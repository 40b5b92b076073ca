package main

import (
	"errors"
	"fmt"
	"testing"
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
