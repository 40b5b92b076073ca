package main

import (
	"github.com/spf13/cobra"

	waitexec "github.com/evalrun/evalrun/internal/wait/exec"
)

// supervisorCommand is the process that a local job runs under. evalrun starts it itself.
func supervisorCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "job-supervisor FOLDER",
		Short:  "Run a local job (used by evalrun itself)",
		Hidden: true,
		Args:   exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if code := waitexec.SuperviseMain(args[0]); code != 0 {
				return &exitError{code, nil}
			}
			return nil
		},
	}
}
