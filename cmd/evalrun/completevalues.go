package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/starter"
	"github.com/evalrun/evalrun/runner"
)

// valuesOf returns the values that a flag of a command accepts, or nil if it takes any. files
// reports whether a file may be named there as well.
func valuesOf(cmd *cobra.Command, f *pflag.Flag) (values []string, files bool) {
	switch name, _ := pflag.UnquoteUsage(f); f.Name {
	case "format":
		return map[string][]string{"report": reportFormats, "compare": compareFormats,
			"calibrate": runner.ComparisonFormats}[cmd.Name()], false
	case "isolation":
		if cmd.Name() == "probe" {
			return []string{runner.IsolationBwrap, runner.IsolationProcess}, false
		}
		return runner.Isolations, false
	case "template":
		for _, t := range starter.Templates {
			values = append(values, t.Name+"\t"+t.For)
		}
		return values, false
	case "agent":
		if cmd.Name() == "run" {
			return agent.Names(), true
		}
	case "by":
		if cmd.Name() == "compare" {
			return []string{"score", "passRate", "evaluator:", "tokens", "cost"}, false
		}
	case "failures":
		return []string{"all"}, false
	case "wait":
		return []string{string(waitAll), string(waitJobs)}, false
	case "interval", "missing", "undecided":
		return strings.Split(name, "|"), false
	case "log-level":
		return []string{"debug", "info", "warn", "error"}, false
	case "builder":
		return []string{"podman", "buildah", "docker"}, false
	case "mcp":
		return []string{"gateway", "direct"}, false
	case "scope":
		for _, scope := range access.Scopes {
			values = append(values, string(scope))
		}
		return values, false
	}
	return nil, false
}

// withValues completes the flags that accept a few values only, of a command and of all below it.
func withValues(cmd *cobra.Command) {
	complete := func(f *pflag.Flag) {
		values, files := valuesOf(cmd, f)
		if values == nil {
			return
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if files {
			directive = cobra.ShellCompDirectiveDefault
		}
		if _, there := cmd.GetFlagCompletionFunc(f.Name); there {
			return
		}
		err := cmd.RegisterFlagCompletionFunc(f.Name,
			cobra.FixedCompletions(values, directive|cobra.ShellCompDirectiveKeepOrder))
		if err != nil {
			panic(err) // the flag is there, and has no completion yet
		}
	}
	cmd.LocalFlags().VisitAll(complete)
	for _, sub := range cmd.Commands() {
		withValues(sub)
	}
}
