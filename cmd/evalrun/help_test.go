package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help lists each command in a group and each flag once, and fits into lines of 100 columns.
func TestHelp(t *testing.T) {
	root := newRoot()
	if !root.AllChildCommandsHaveGroup() {
		t.Error("a command belongs to no group of the help")
	}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		var text strings.Builder
		c.SetOut(&text)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpColumns {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		c.Flags().VisitAll(func(flag *pflag.Flag) {
			listed := regexp.MustCompile(`(?m)^ {2,6}(-\w, )?--`+flag.Name+`\b[^-]`).FindAllString(text.String(), -1)
			if len(listed) != 1 && !flag.Hidden {
				t.Errorf("%s: help lists --%s %d times", c.CommandPath(), flag.Name, len(listed))
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)
}
