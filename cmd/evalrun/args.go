package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// exactly expects the arguments that the command's usage names, no more and no fewer.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// between expects from least to most arguments.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if least <= len(args) && len(args) <= most {
			return nil
		}
		_, expected, _ := strings.Cut(cmd.Use, " ")
		if most == 0 {
			expected = "no argument"
		}
		got := "none"
		if len(args) > 0 {
			got = strings.Join(args, " ")
		}
		return usageError("%s: expected %s, got %s; see %s --help", cmd.Name(), expected, got, cmd.CommandPath())
	}
}
