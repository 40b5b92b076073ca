package main

import (
	"cmp"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of help that does not go to a terminal.
const helpColumns = 100

// flagTitle is the annotation of a flag that names its title in help.
const flagTitle = "title"

const (
	titleWhat    = "What to run"
	titleAgents  = "How agents run"
	titleJudges  = "Judges"
	titleWaiting = "Waiting and resuming"
	titleVerdict = "What counts as success"
	titleWritten = "Output"
	titleOther   = "Other flags"
)

// titles lists the titles in the order of help.
var titles = []string{titleWhat, titleAgents, titleJudges, titleWaiting, titleVerdict, titleWritten, titleOther}

// manyFlags is the number of flags from which on help lists them by title.
const manyFlags = 16

// titled puts the flags that have no title yet under one.
func titled(f *pflag.FlagSet, title string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[flagTitle] == nil {
			_ = f.SetAnnotation(flag.Name, flagTitle, []string{title}) // it fails only for an unknown flag
		}
	})
}

// addGroup adds commands that help lists together.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// printUsage prints how a command is called: cobra's own usage, with the flags in groups and lines
// that fit the terminal.
func printUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	printf(w, "Usage:\n")
	if c.Runnable() {
		printf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		printf(w, "  %s [command]\n", c.CommandPath())
	}
	if c.HasExample() {
		printf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, group := range c.Groups() {
		printCommands(w, c, group.Title, group.ID)
	}
	printCommands(w, c, "Commands:", "")
	printFlags(w, c)
	if c.HasAvailableSubCommands() {
		printf(w, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
	return nil
}

func printCommands(w io.Writer, c *cobra.Command, title, group string) {
	for _, sub := range c.Commands() {
		if sub.GroupID != group || !sub.IsAvailableCommand() && sub.Name() != "help" {
			continue
		}
		if title != "" {
			printf(w, "\n%s\n", title)
			title = ""
		}
		printf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
	}
}

func printFlags(w io.Writer, c *cobra.Command) {
	width := helpColumns
	if f := terminal(c.OutOrStdout()); f != nil {
		width = columns(f)
	}
	var all []*pflag.Flag
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) { all = append(all, flag) })
	if len(all) < manyFlags {
		printFlagSet(w, "Flags", c.LocalFlags(), width)
	} else {
		for _, title := range titles {
			group := pflag.NewFlagSet(title, pflag.ContinueOnError)
			for _, flag := range all {
				if cmp.Or(strings.Join(flag.Annotations[flagTitle], ""), titleOther) == title {
					group.AddFlag(flag)
				}
			}
			printFlagSet(w, title, group, width)
		}
	}
	printFlagSet(w, "Global flags", c.InheritedFlags(), width)
}

func printFlagSet(w io.Writer, title string, f *pflag.FlagSet, width int) {
	if f.HasAvailableFlags() {
		printf(w, "\n%s:\n%s\n", title, strings.TrimRight(f.FlagUsagesWrapped(width), " \n"))
	}
}
