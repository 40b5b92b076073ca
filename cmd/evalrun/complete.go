package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// completionCommand prints the script with which a shell completes the command line.
func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell, which completes ids, too",
		Long: `Print what a shell needs to complete commands, flags and their values, and the ids of runs, triggers
and evaluations of the store that a command would use.`,
		Example: `  source <(evalrun completion bash)        # in ~/.bashrc; needs bash-completion
  evalrun completion zsh > "${fpath[1]}/_evalrun"
  evalrun completion fish > ~/.config/fish/completions/evalrun.fish`,
		Args:      exactly(1),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			write := map[string]func(io.Writer) error{
				"bash": func(w io.Writer) error { return cmd.Root().GenBashCompletionV2(w, true) },
				"zsh":  cmd.Root().GenZshCompletion,
				"fish": func(w io.Writer) error { return cmd.Root().GenFishCompletion(w, true) },
			}[args[0]]
			if write == nil {
				return usageError("completion: expected bash, zsh or fish, got %q", args[0])
			}
			return internal(write(stdout(cmd)))
		},
	}
}

// completing returns the words that complete a command line, each with a description after a tab.
type completing func(cmd *cobra.Command, s *runner.Store, args []string) ([]string, error)

// complete completes from the store. Without a readable store there are no completions. files
// reports whether a file may be named there as well.
func (g *globals) complete(files bool, f completing) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if files {
			directive = cobra.ShellCompDirectiveDefault
		}
		if cmd.Context() == nil {
			cmd.SetContext(context.Background())
		}
		_ = g.withStore(cmd, false, func(s *runner.Store) (err error) {
			found, err = f(cmd, s, args)
			return err
		})
		return found, directive | cobra.ShellCompDirectiveKeepOrder
	}
}

// withCompletion completes the arguments that the usage of a command calls RUN, TRIGGER and so on,
// and the flags that name a run.
func (g *globals) withCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if strings.Contains(cmd.Use, "RUN") || strings.Contains(cmd.Use, "TRIGGER") {
			cmd.ValidArgsFunction = g.complete(strings.Contains(cmd.Use, ".json") || cmd.Name() == "compare", argument)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			complete := completeEvalIDs
			if name, _ := pflag.UnquoteUsage(f); name == "RUN" {
				complete = g.complete(false, runIDs)
			} else if f.Name != "eval-id" {
				return
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err) // the flag is there, and has no completion yet
			}
		})
	}
}

// argument completes the next argument by its name in the usage of the command.
func argument(cmd *cobra.Command, s *runner.Store, args []string) ([]string, error) {
	words := strings.Fields(cmd.Use)[1:]
	word := words[min(len(args), len(words)-1)]
	switch {
	case cmd.Name() == "compare", strings.HasSuffix(word, "..."):
		return runIDs(cmd, s, args)
	case len(args) >= len(words):
		return nil, nil
	case strings.Contains(word, "RUN"):
		return runIDs(cmd, s, args)
	case strings.Contains(word, "TRIGGER"):
		return triggerIDs(cmd, s, args)
	case strings.Contains(word, "ROLLOUT"), strings.Contains(word, "EVALUATION"):
		return evaluationIDs(cmd, s, args)
	}
	return nil, nil
}

// runIDs returns the runs of the store, the newest first.
func runIDs(cmd *cobra.Command, s *runner.Store, args []string) (out []string, err error) {
	all, err := s.Runs(cmd.Context())
	for _, r := range all {
		if !slices.Contains(args, r.ID) {
			out = append(out,
				r.ID+"\t"+listStatus(r)+", "+r.CreatedAt.Local().Format(time.DateTime)+", "+redact.Line(r.EvaluationSetName))
		}
	}
	if len(all) > 0 && len(args) == 0 {
		out = append(out, runner.Latest+"\tthe newest run")
	}
	return out, err
}

// evaluationIDs returns the evaluations of the run that is named before them.
func evaluationIDs(cmd *cobra.Command, s *runner.Store, args []string) (out []string, err error) {
	run, err := s.Find(cmd.Context(), args[0])
	if err != nil {
		return nil, err
	}
	rollouts, err := service.New(s, service.Config{}, service.Options{}).ListRollouts(cmd.Context(), run.ID, 0,
		mostCompleted)
	for _, r := range rollouts {
		one := r.EvaluationID + "\t" + redact.Line(r.EvaluationName)
		if onOneLine(r.EvaluationID) && (len(out) == 0 || out[len(out)-1] != one) {
			out = append(out, one)
		}
	}
	return out, err
}

// mostCompleted is how many evaluations or triggers are offered.
const mostCompleted = 1000

// errEnough ends a listing.
var errEnough = errors.New("enough")

// triggerIDs returns the triggers that can be answered.
func triggerIDs(cmd *cobra.Command, s *runner.Store, _ []string) (out []string, err error) {
	err = s.Triggers(cmd.Context(), "", false, func(t runner.Trigger) error {
		if t.Answer == runner.AnswerPoll {
			return nil
		}
		if len(out) == mostCompleted {
			return errEnough
		}
		out = append(out, t.TriggerID+"\t"+t.Type+", "+redact.Line(t.EvaluationName))
		return nil
	})
	return out, err
}

// completeEvalIDs returns the evaluations of the sets that are named before the flag. Several ids
// are separated by commas.
func completeEvalIDs(_ *cobra.Command, args []string,
	begun string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
	before := begun[:strings.LastIndexByte(begun, ',')+1]
	for _, one := range runner.Evaluations(args, mostCompleted) {
		if onOneLine(one.ID) {
			out = append(out, before+one.ID+"\t"+redact.Line(one.Name))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// onOneLine reports whether an id can be offered. A shell takes the text after a tab for its
// description.
func onOneLine(id string) bool { return redact.Line(id) == id && !strings.Contains(id, "\t") }
