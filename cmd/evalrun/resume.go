package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

func resumeCommand(g *globals) *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use:   "resume RUN|RESULTS.json",
		Short: "Resume the rollouts that can go on (--wait: until all are done)",
		Long: `Ask once whether the jobs that a run waits for are done, resume the rollouts that can go on, and
update the results document. The run is named by its id, a unique beginning or end of it, latest
(latest~1 is the one before), or its results document.`,
		Args: w.waitArgs(exactly(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := w.options()
			if err := errors.Join(err, w.refuseInputs()); err != nil {
				return err
			}
			if o.Variables, err = w.variables(); err != nil {
				return err
			}
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				files, err := s.Files(cmd.Context(), run.ID)
				if err := errors.Join(err, w.refuseInputs(files...)); err != nil {
					return err
				}
				if w.output == "" && run.ID != args[0] && input.IsFile(args[0]) {
					w.output, o.Document = args[0], args[0]
				}
				return w.work(cmd, g, s, run.ID, o, true)
			})
		},
	}
	w.register(cmd)
	return cmd
}
