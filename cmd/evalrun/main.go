// Command evalrun runs evaluation sets against AI agents, and can wait: a rollout whose agent
// started a long-running job is suspended, and resumed and scored when the job is done.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/runner"
)

func main() {
	sandbox.InitMain()
	container.ExecMain()
	cobra.EnableCommandSorting = false // help keeps the order in which the commands are needed
	os.Exit(Main())
}

// Main runs the command line of this process and returns its exit code.
func Main() int {
	return execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	var printed *watchedWriter // nil unless the output is JSON: a terminal must be recognizable as one
	if wantsJSON(args) {
		printed = &watchedWriter{w: stdout}
		cmd.SetOut(printed)
	}
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	text := strings.TrimSpace(redact.Terminal(err.Error()))
	if text != "" {
		printf(stderr, "%s%s\n", prefix(err), text)
		if errors.Is(err, runner.ErrLacking) {
			printf(stderr, "evalrun doctor says what this machine has, and what mends the rest\n")
		}
	}
	if printed != nil && !printed.written && text != "" {
		_ = printJSON(cmd, newErrorJSON(err, text)) // stderr has the error
	}
	return codeOf(err)
}

// prefix is put before a message, except before one that begins with a place in a file: editors and
// CI systems look for those.
func prefix(err error) string {
	var several input.Problems
	var one input.Problem
	if errors.As(err, &several) || errors.As(err, &one) && strings.HasPrefix(err.Error(), one.File) {
		return ""
	}
	return "evalrun: "
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "evalrun",
		Short: "Run eval sets against AI agents; suspend while jobs run, resume, score",
		Long: `evalrun runs evaluation sets against AI agents, and can wait: when an agent starts a long-running
job or asks a person, its rollout is suspended, and no process keeps running. When the job is done,
the rollout resumes where it stopped, and is scored.

` + exitCodeHelp,
		Version:       buildInfo().line(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	g := &globals{}
	g.register(root)
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return g.check(cmd) }
	addGroup(root, "Run", initCommand(g), importCommand(g), validateCommand(g), runCommand(g), resumeCommand(g), executorCommand(g),
		cancelCommand(g))
	addGroup(root, "Answer questions and jobs", triggersCommand(g), answerCommand(g, "approve"), answerCommand(g, "deny"),
		deliverCommand(g), rateCommand(g))
	addGroup(root, "Results", listCommand(g), showCommand(g), logsCommand(g), viewCommand(g), reportCommand(g))
	addGroup(root, "Compare and score", compareCommand(g), calibrateCommand(g), scoreCommand(g))
	addGroup(root, "Services", serveCommand(g), tokenCommand(g), jobsCommand(g), gatewayCommand(g))
	addGroup(root, "Tasks and agents", taskCommand(g), imagesCommand(g), probeCommand(g))
	addGroup(root, "Store and program", gcCommand(g), limitsCommand(g), packCommand(g), pruneCommand(g), rmCommand(g), unpackCommand(g),
		doctorCommand(g), completionCommand(), schemaCommand(g), versionCommand(g))
	root.SetHelpCommandGroupID("Store and program")
	root.AddCommand(supervisorCommand(), bridgeCommand(), probeServerCommand())
	root.SetUsageFunc(printUsage)
	g.withCompletion(root)
	withValues(root)
	return root
}
