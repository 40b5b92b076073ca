package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/engine"
)

func resumeCommand(g *globals) *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use:   "resume RUN|RESULTS.json",
		Short: "Check the triggers of a run once and resume what can be resumed (--wait: until done)",
		Long: `Ask once whether the jobs that a run waits for are done, resume the rollouts that can go on, and update the results
document. The run is named by its id, a unique beginning of it, or its results document.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := errors.Join(w.check(), w.refuseInputs()); err != nil {
				return err
			}
			env, err := w.environment()
			if err != nil {
				return err
			}
			s, runID, err := g.findRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, internal(s.Close())) }()
			if runID != args[0] && w.output == "" && isFile(args[0]) {
				w.output = args[0]
			}
			until := engine.UntilIdle
			if w.wait {
				until = engine.UntilFinal
			}
			return w.work(cmd, g, s, runID, env, until, true)
		},
	}
	w.register(cmd)
	return cmd
}
