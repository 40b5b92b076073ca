//go:build man

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"
)

// With the build tag man this is another program: it writes the man pages of all commands into the
// folder EVALRUN_MAN and ends. The program that people install does not grow by cobra's generator and
// the parser of Markdown that comes with it.
func init() {
	date, err := time.Parse(time.RFC3339, date)
	if err == nil {
		root := newRoot()
		root.DisableAutoGenTag = true // it has the day on which the pages are made
		header := &doc.GenManHeader{Title: "EVALRUN", Section: "1", Date: &date, Source: "evalrun " + version}
		err = doc.GenManTree(root, header, os.Getenv("EVALRUN_MAN"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evalrun: man pages:", err)
		os.Exit(exitInternal)
	}
	os.Exit(exitOK)
}
