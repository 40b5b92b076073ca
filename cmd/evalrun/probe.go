package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/probe"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
)

func probeCommand(g *globals) *cobra.Command {
	var o probe.Options
	cmd := &cobra.Command{
		Use:   "probe AGENT",
		Short: "Measure what an ACP agent supports: MCP transports, cancel, resume, orphans",
		Long: `Start an agent against MCP servers over stdio, http and sse and a scripted model, and
print what it does: whether its model sees the servers' tools and calls arrive, whether it waits for
them, what session/cancel and SIGKILL do, whether session/resume and session/load bring everything
back, and what is left when it ends. Nothing leaves this machine but what the agent itself sends.

AGENT is a name of the registry, or a file with an agent entry. The entry's own model is not used.
The exit code is 0 whatever the verdicts are, and 3 if the agent does not start or does not answer
initialize.

Checks:
  ` + strings.Join(probe.Names(), "\n  "),
		Example: `  evalrun probe opencode
  evalrun probe --only http,resume --json my-agent.json`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runProbe(cmd, g, o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Isolation, "isolation", sandbox.IsolationBwrap,
		"run the agent in `KIND`: bwrap (a file tree and processes of its own, this machine's network; Linux), or process (plain folders)")
	f.StringSliceVar(&o.Only, "only", nil, "make only the checks `NAME,...`, after initialize")
	f.DurationVar(&o.Timeout, "timeout", probe.DefaultTimeout, "end each check after `DURATION`")
	return cmd
}

// probeServerCommand is the MCP server that a probed agent starts.
func probeServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:                probe.StdioCommand,
		Short:              "Serve MCP on stdin and stdout (used by evalrun itself)",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               between(0, math.MaxInt),
		RunE:               func(_ *cobra.Command, args []string) error { return internal(fakemcp.StdioMain(args)) },
	}
}

func runProbe(cmd *cobra.Command, g *globals, o probe.Options, name string) error {
	if o.Timeout <= 0 {
		return usageError("--timeout: expected a duration above 0, got %v", o.Timeout)
	}
	for _, c := range o.Only {
		if known := probe.Names(); !slices.Contains(known, c) {
			return usageError("--only: there is no check %q%s; there are %s", c, input.Suggest(c, known),
				strings.Join(known, ", "))
		}
	}
	var err error
	if o.Entry, o.BaseDir, err = probedAgent(cmd, name); err != nil {
		return err
	}
	if err := sandbox.Supported(o.Isolation); err != nil {
		return usageError("--isolation: %w", err)
	}
	if o.Executable, err = os.Executable(); err != nil {
		return internal(err)
	}
	o.Version = buildInfo().line()
	if !g.quiet {
		o.Done = func(c probe.Check) { printf(cmd.ErrOrStderr(), "%s: %s\n", c.Name, redact.Line(c.Verdict)) }
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report, err := probe.Run(ctx, o)
	// The agent's messages may contain the values of its entry's variables.
	red := redact.New(redact.FromEnviron(os.Environ(), o.Entry.Variables()))
	var start *probe.StartError
	switch {
	case ctx.Err() != nil && cmd.Context().Err() == nil:
		return &exitError{exitInterrupted, errors.New("interrupted; everything that was started is ended")}
	case errors.As(err, &start):
		return &exitError{exitFaulted, errors.New(red.String(err.Error()))}
	case err != nil:
		return internal(err)
	}
	return printProbe(cmd, g, red, report)
}

func printProbe(cmd *cobra.Command, g *globals, red *redact.Redactor, report *probe.Report) error {
	if g.json {
		raw, err := json.Marshal(report)
		if err != nil {
			return internal(err)
		}
		return printJSON(cmd, red.JSON(raw))
	}
	if g.quiet {
		return nil
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil {
		return internal(err)
	}
	_, err := stdout(cmd).Write(red.Bytes(table.Bytes()))
	return internal(err)
}

// probedAgent returns the agent entry that the argument names, and the folder that it is relative
// to.
func probedAgent(cmd *cobra.Command, name string) (agent.Entry, string, error) {
	e, ok := agent.Registered(name)
	dir := ""
	if !ok {
		data, err := input.ReadFile(name, input.MaxFile)
		if err != nil {
			known := slices.DeleteFunc(agent.Names(), func(name string) bool {
				e, _ := agent.Registered(name)
				return !probe.Supports(e)
			})
			return e, "",
				usageError("expected the name of one of the registry's agents (%s), or a file with an agent entry; %w%s",
					strings.Join(known, ", "), input.Unreadable(name, err), input.Suggest(name, known))
		}
		n, err := input.Parse(name, data)
		if err != nil {
			return e, "", &exitError{exitUsage, err}
		}
		r := &input.Reader{}
		e = agent.ParseEntry(r, n)
		if err := r.Problems.Err(false); err != nil {
			return e, "", &exitError{exitUsage, err}
		}
		if warnings := r.Problems.Warnings(); len(warnings) > 0 {
			printf(cmd.ErrOrStderr(), "%s\n", warnings)
		}
		dir = filepath.Dir(name)
	}
	if !probe.Supports(e) {
		return e, "", usageError("%s: agents of type %q do not speak the Agent Client Protocol; there is nothing to probe",
			name, e.Type)
	}
	dir, err := filepath.Abs(dir)
	return e, dir, internal(err)
}
