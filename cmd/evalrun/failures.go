package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/report"
)

// failuresFlag is how many failures are described at length; below 0 all are.
type failuresFlag struct{ n int }

func (f *failuresFlag) register(cmd *cobra.Command) {
	f.n = report.DefaultFailures
	cmd.Flags().Var(f, "failures", "explain in detail why `N` rollouts failed, or all")
}

// Set implements pflag.Value.
func (f *failuresFlag) Set(text string) error {
	if text == "all" {
		f.n = -1
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("expected a number or all")
	}
	f.n = n
	return nil
}

// String implements pflag.Value.
func (f *failuresFlag) String() string {
	if f.n < 0 {
		return "all"
	}
	return strconv.Itoa(f.n)
}

// Type implements pflag.Value.
func (f *failuresFlag) Type() string { return "N|all" }
