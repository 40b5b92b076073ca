package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalrun/evalrun/internal/input"
)

// exactly expects the arguments that the command's usage names, no more and no fewer.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// between expects from least to most arguments.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if least <= len(args) && len(args) <= most {
			return nil
		}
		if cmd.HasSubCommands() && len(args) > 0 {
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return usageError("%s has no command %q%s; see %s --help", cmd.CommandPath(), args[0],
				input.Suggest(args[0], known), cmd.CommandPath())
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

// strayDuration says that an argument is the value of a flag that takes none, as in --wait 10s.
func strayDuration(args []string) error {
	for _, arg := range args {
		if _, err := time.ParseDuration(arg); err == nil && !input.IsFile(arg) {
			return usageError("%s is no file; --wait takes no value, --wait-timeout %s does", arg, arg)
		}
	}
	return nil
}

// otherNames maps names that other programs give to flags of evalrun, and that are not spelt like
// them.
var otherNames = map[string]string{"threshold": "fail-under", "thresholds": "fail-under", "min-score": "fail-under",
	"parallel": "concurrency", "workers": "concurrency",
	"max-workers": "concurrency", "timeout": "wait-timeout", "repeat": "epochs", "env-var": "env", "verbose": "log-level"}

// flagError returns an error that says what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		// The names are compared without the dashes, which make all flags alike.
		name := unknown.GetSpecifiedName()
		if meant := otherNames[name]; slices.Contains(known, meant) {
			name = meant
		}
		near := strings.Replace(input.Suggest(name, known), `"`, `"--`, 1)
		return usageError("%w%s; see %s --help", err, near, cmd.CommandPath())
	case errors.As(err, &invalid):
		expected := map[string]string{"int": "a whole number", "duration": `a duration such as "30s" or "10m"`,
			"bool": "true or false", "age": `an age such as "30d", "2w" or "12h"`,
			"N|all": "a number or all"}
		f := invalid.GetFlag()
		return usageError("--%s: expected %s, got %q", f.Name, cmp.Or(expected[f.Value.Type()], "another value"),
			invalid.GetValue())
	}
	return usageError("%w; see %s --help", err, cmd.CommandPath())
}
