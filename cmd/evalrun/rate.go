package main

import (
	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
)

func rateCommand(g *globals) *cobra.Command {
	var r runner.Rating
	cmd := &cobra.Command{
		Use:   "rate TRIGGER VALUE",
		Short: "Answer an evaluator that asks a person: a score, pass or fail, or a label",
		Long: `Rate what an agent has made. VALUE is a number from 0 to 1, pass or fail, or one of the labels, as
the evaluator asks for it; evalrun triggers shows what it asks, and of what. A value that the
evaluator does not take is refused, and it goes on waiting. Go on with evalrun resume, unless an
executor is running.`,
		Example: `  evalrun rate 0197c3a2 0.8 --reason "correct, but long"`,
		Args:    exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("by") && !cmd.Flags().Changed("rater") {
				r.Rater = userName()
			}
			r.Value = args[1]
			return g.withStore(cmd, false, func(s *runner.Store) error {
				receipt, err := s.Rate(cmd.Context(), args[0], r)
				if err != nil {
					return err
				}
				return g.printReceipt(cmd, s, receipt)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Reason, "reason", "", "the `REASON`, shown in the results")
	f.StringVar(&r.Rater, "by", "", "`WHO` answers; you by default")
	f.StringVar(&r.Rater, "rater", "", "")
	_ = f.MarkHidden("rater") // another name of --by, which approve, deny and deliver have
	return cmd
}
