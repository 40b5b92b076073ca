package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/gateway/standalone"
	mcptasks "github.com/evalrun/evalrun/internal/gateway/tasks"
)

// gatewayFlags are the flags of `evalrun gateway`.
type gatewayFlags struct {
	standalone.Options
	stdio string // the endpoint to serve on stdin and stdout; empty for HTTP
}

func gatewayCommand(g *globals) *cobra.Command {
	var o gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway CONFIG",
		Short: "Serve the MCP servers of a file to any MCP client",
		Long: `Serve the MCP servers of CONFIG (the file of Claude, Gemini or VS Code, or the same in YAML or TOML)
over streamable HTTP, each at an endpoint of its own, to clients of every version of MCP. ${NAME} in
url, headers, env, command and args is taken from the environment; one that is not set is an error,
unless it has a default: ${NAME:-default}. Programs see of the environment only what they need, and
what their env names.

/healthz says ok to everybody. /metrics, for Prometheus, wants the token.

When it is ready it prints the servers as an MCP client's configuration wants them, with the token
that clients must bear. A client that cannot send headers may call /t/TOKEN/mcp/NAME instead. It
ends with Ctrl-C.

With --stdio it serves one of the endpoints on stdin and stdout, for clients that start their
servers, until stdin ends.

Clients that know MCP tasks can have calls that take long as tasks, whatever the server knows; for
others the gateway waits. Tasks and sessions are kept in the store, and the token beside it, so that
clients can go on when the gateway was started again; with --stdio they end with it.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), endSignals()...)
			defer stop()
			if err := o.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return o.run(ctx, g, cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:0", "listen on `ADDRESS`; a port of 0 takes a free one")
	f.BoolVar(&o.AllowRemote, "allow-remote", false,
		"let --listen name an address that other machines reach; there is no encryption, and the token is all that keeps strangers out")
	f.StringVar(&o.TokenFile, "token-file", "", "take the token from `FILE` instead of the one that is kept in the store")
	f.BoolVar(&o.Aggregate, "aggregate", false,
		"serve the tools, prompts and resources of all servers at one endpoint more, "+standalone.AggregateName)
	f.StringVar(&o.stdio, "stdio", "",
		"serve the server `NAME` on stdin and stdout instead of all over HTTP, or all of them at once if that is "+
			standalone.AggregateName)
	f.DurationVar(&o.Tasks.TTL, "task-ttl", mcptasks.DefaultTaskTTL,
		"keep tasks for `TIME` whose client does not say for how long")
	f.DurationVar(&o.Tasks.MaxTTL, "max-task-ttl", mcptasks.DefaultMaxTaskTTL, "keep no task for longer than `TIME`")
	f.IntVar(&o.Tasks.Max, "max-tasks", mcptasks.DefaultMaxTasks, "keep at most `N` tasks")
	f.IntVar(&o.Tasks.MaxPerSession, "max-tasks-per-session", mcptasks.DefaultMaxSessionTasks,
		"keep at most `N` tasks of one session")
	f.IntVar(&o.MaxSessions, "max-sessions", 100,
		"have at most `N` sessions of one stdio server, each of which is a process")
	f.StringVar(&o.RequestLog, "request-log", "",
		"add a line of JSON to `FILE` for every request, and every one that is refused; - is stderr")
	f.BoolVar(&o.Tasks.Widen, "tasks-of-forbidden", false,
		"let clients call tools as tasks that forbid it, if their server has no tasks itself")
	f.BoolVar(&o.Tasks.Strict, "require-task-capability", false,
		"refuse calls that need a task if a client of 2026-07-28 has not declared tasks, instead of waiting for it")
	return cmd
}

// endSignals returns the signals that end the gateway, which then ends its servers. Under nohup,
// closing the terminal does not end it.
func endSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func (o *gatewayFlags) run(ctx context.Context, g *globals, cmd *cobra.Command, file string) (err error) {
	stderr := cmd.ErrOrStderr()
	o.Stderr = stderr
	o.Warn = func(text string) { printf(stderr, "warning: %s\n", text) }
	o.Notice = func(text string) {
		if !g.quiet {
			printf(stderr, "%s\n", text)
		}
	}
	config, warnings, err := standalone.ReadConfig(file)
	if len(warnings) > 0 {
		printf(stderr, "%s\n", warnings)
	}
	if err != nil {
		return err
	}
	if o.stdio != "" {
		in, out, restore := messageFiles() // before there is something to clean up
		defer restore()
		return internal(config.ServeStreams(ctx, o.stdio, func(dir string) (standalone.Store, func() error, error) {
			st, err := openGatewayStore(dir)
			if err != nil {
				return nil, nil, err
			}
			return st, st.Close, nil
		}, o.Options, in, out))
	}
	st, err := openGatewayStore(g.storeDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(st.Close())) }()
	return internal(config.Serve(ctx, st, o.Options, func(endpoints []standalone.Endpoint) error {
		return printClientConfig(cmd.OutOrStdout(), endpoints)
	}))
}

// check refuses invalid limits, and lowers defaults to the limits that were given.
func (o *gatewayFlags) check(given func(flag string) bool) error {
	for _, flag := range []string{"listen", "allow-remote", "token-file", "store"} {
		if o.stdio != "" && given(flag) {
			return usageError("--%s is for clients over HTTP, and has no use with --stdio", flag)
		}
	}
	t := &o.Tasks
	if !given("task-ttl") {
		t.TTL = min(t.TTL, t.MaxTTL)
	}
	if !given("max-tasks-per-session") {
		t.MaxPerSession = min(t.MaxPerSession, t.Max)
	}
	return cmp.Or(
		within("--max-task-ttl", t.MaxTTL, time.Millisecond, mcptasks.LongestTaskTTL, ""),
		within("--task-ttl", t.TTL, time.Millisecond, t.MaxTTL, ", which is --max-task-ttl"),
		within("--max-tasks", t.Max, 1, mcptasks.MostTasks, ""),
		within("--max-tasks-per-session", t.MaxPerSession, 1, t.Max, ", which is --max-tasks"),
		within("--max-sessions", o.MaxSessions, 1, 100_000, ""),
	)
}

func within[T cmp.Ordered](flag string, value, least, most T, why string) error {
	if value < least || value > most {
		return usageError("%s: expected %v to %v%s, got %v", flag, least, most, why, value)
	}
	return nil
}

// printClientConfig prints the endpoints in the form that clients want in their configuration.
func printClientConfig(w io.Writer, endpoints []standalone.Endpoint) error {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	out := map[string]map[string]server{"mcpServers": {}}
	for _, e := range endpoints {
		out["mcpServers"][e.Name] = server{"http", e.URL, map[string]string{"Authorization": "Bearer " + e.Token}}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
