package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/catalog"
	mcptasks "github.com/evalrun/evalrun/internal/gateway/tasks"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// gatewayFlags are those of `evalrun gateway`.
type gatewayFlags struct {
	listen      string
	allowRemote bool
	tokenFile   string
	aggregate   bool
	stdio       string // the endpoint to serve on stdin and stdout; empty for HTTP
	tasks       mcptasks.Options
	maxSessions int // of one stdio server
	requestLog  string
}

// aggregateName is the name of the endpoint that has what all servers have.
const aggregateName = "all"

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
			if o.stdio != "" {
				return o.runStdio(ctx, cmd.ErrOrStderr(), args[0])
			}
			return o.run(ctx, g, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "listen on `ADDRESS`; a port of 0 takes a free one")
	f.BoolVar(&o.allowRemote, "allow-remote", false, "let --listen name an address that other machines reach; there is no encryption, and the token is all that keeps strangers out")
	f.StringVar(&o.tokenFile, "token-file", "", "take the token from `FILE` instead of the one that is kept in the store")
	f.BoolVar(&o.aggregate, "aggregate", false, "serve the tools, prompts and resources of all servers at one endpoint more, "+aggregateName)
	f.StringVar(&o.stdio, "stdio", "", "serve the server `NAME` on stdin and stdout instead of all over HTTP, or all of them at once if that is "+aggregateName)
	f.DurationVar(&o.tasks.TTL, "task-ttl", mcptasks.DefaultTaskTTL, "keep tasks for `TIME` whose client does not say for how long")
	f.DurationVar(&o.tasks.MaxTTL, "max-task-ttl", mcptasks.DefaultMaxTaskTTL, "keep no task for longer than `TIME`")
	f.IntVar(&o.tasks.Max, "max-tasks", mcptasks.DefaultMaxTasks, "keep at most `N` tasks")
	f.IntVar(&o.tasks.MaxPerSession, "max-tasks-per-session", mcptasks.DefaultMaxSessionTasks, "keep at most `N` tasks of one session")
	f.IntVar(&o.maxSessions, "max-sessions", 100, "have at most `N` sessions of one stdio server, each of which is a process")
	f.StringVar(&o.requestLog, "request-log", "", "add a line of JSON to `FILE` for every request, and every one that is refused; - is stderr")
	f.BoolVar(&o.tasks.Widen, "tasks-of-forbidden", false, "let clients call tools as tasks that forbid it, if their server has no tasks itself")
	f.BoolVar(&o.tasks.Strict, "require-task-capability", false, "refuse calls that need a task if a client of 2026-07-28 has not declared tasks, instead of waiting for it")
	return cmd
}

// endSignals are those that end the gateway, which then ends its servers. Under nohup the end of
// the terminal is none of them.
func endSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func (o *gatewayFlags) run(ctx context.Context, g *globals, stdout, stderr io.Writer, config string) (err error) {
	declared, err := readGatewayConfig(config, stderr)
	if err != nil {
		return err
	}
	st, err := openGatewayStore(g.storeDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(st.Close())) }()
	token, err := gatewayToken(o.tokenFile, st.Dir())
	if err != nil {
		return err
	}
	mark, unlock, err := lockGateway(st, token)
	if err != nil {
		return err
	}
	defer unlock()
	if n, err := sandbox.Sweep(mark); err != nil {
		return internal(err)
	} else if n > 0 && !g.quiet {
		printf(stderr, "ended what an earlier gateway had left running of its MCP servers: %d processes\n", n)
	}
	log, endLog, err := openGatewayLog(o.requestLog, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(endLog())) }()
	gw, err := gateway.Listen(o.listen)
	if err != nil {
		return usageError("--listen: %w", err)
	}
	defer func() { err = errors.Join(err, endGateway(gw, mark)) }()
	host, err := o.host(gw, stderr)
	if err != nil {
		return err
	}
	metrics := newGatewayMetrics()
	gw.Observe(&gatewayObserver{log, metrics})
	gw.Page("/metrics", metrics.handler())
	o.tasks.Store = st
	access, running, err := o.open(gw, gateway.AccessOptions{Servers: o.servers(declared, mark, stderr), Token: token}, config)
	if err != nil {
		return err
	}
	metrics.of(access, running)
	if err := printClientConfig(stdout, host, access); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// runStdio serves one endpoint to whoever has started us, who alone can reach it: it needs no
// token, and what is kept for it goes with it.
func (o *gatewayFlags) runStdio(ctx context.Context, stderr io.Writer, config string) (err error) {
	declared, err := readGatewayConfig(config, stderr)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range declared {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, o.stdio) {
		if o.stdio != aggregateName {
			return usageError("--stdio: there is no MCP server %q in %s; expected %s, or %s", o.stdio, config, strings.Join(names, ", "), aggregateName)
		}
		o.aggregate = true
	}
	in, out, restore := messageFiles() // before there is something to clean up
	defer restore()
	dir, err := os.MkdirTemp("", "evalrun-gateway-")
	if err != nil {
		return internal(err)
	}
	defer func() { err = errors.Join(err, internal(os.RemoveAll(dir))) }()
	st, err := openGatewayStore(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(st.Close())) }()
	log, endLog, err := openGatewayLog(o.requestLog, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(endLog())) }()
	gw, mark := gateway.New(), st.ID()+"/gateway"
	defer func() { err = errors.Join(err, endGateway(gw, mark)) }()
	gw.Observe(&gatewayObserver{log, newGatewayMetrics()})
	o.tasks.Store = st
	access, _, err := o.open(gw, gateway.AccessOptions{Servers: o.servers(declared, mark, stderr)}, config)
	if err != nil {
		return err
	}
	if err := access.ServeStdio(ctx, o.stdio, in, out); err != nil && ctx.Err() == nil {
		return internal(err)
	}
	return nil
}

// endGateway closes a gateway and ends what its servers, whose processes bear the mark, have left
// running.
func endGateway(gw *gateway.Gateway, mark string) error {
	err := gw.Close()
	_, left := sandbox.Sweep(mark)
	return errors.Join(err, internal(left))
}

func readGatewayConfig(config string, stderr io.Writer) ([]tasks.MCPServer, error) {
	declared, warnings, err := gatewayConfig(config)
	if len(warnings) > 0 {
		printf(stderr, "%s\n", warnings)
	}
	return declared, err
}

// open opens an access whose clients get tasks. running counts the tasks that have not ended.
func (o *gatewayFlags) open(gw *gateway.Gateway, options gateway.AccessOptions, config string) (access *gateway.Access, running func() int, err error) {
	manager, err := mcptasks.New(o.tasks, nil)
	if err != nil {
		return nil, nil, usageError("%s: %w", config, err)
	}
	options.Tasks = manager
	if o.aggregate {
		options.Combine = catalog.Combine(aggregateName)
	}
	if access, err = gw.Open(options); err != nil {
		return nil, nil, usageError("%s: %w", config, err)
	}
	return access, manager.Running, nil
}

// check refuses limits that are none, and lets those that were not given follow those that were.
func (o *gatewayFlags) check(given func(flag string) bool) error {
	for _, flag := range []string{"listen", "allow-remote", "token-file", "store"} {
		if o.stdio != "" && given(flag) {
			return usageError("--%s is for clients over HTTP, and has no use with --stdio", flag)
		}
	}
	t := &o.tasks
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
		within("--max-sessions", o.maxSessions, 1, 100_000, ""),
	)
}

func within[T cmp.Ordered](flag string, value, least, most T, why string) error {
	if value < least || value > most {
		return usageError("%s: expected %v to %v%s, got %v", flag, least, most, why, value)
	}
	return nil
}

// host is where clients on this machine reach the gateway. Other machines are to reach it only if
// that was asked for.
func (o *gatewayFlags) host(gw *gateway.Gateway, stderr io.Writer) (string, error) {
	addr, ok := gw.Addr().(*net.TCPAddr)
	if !ok || addr.IP.IsLoopback() {
		return gw.Addr().String(), nil
	}
	if !o.allowRemote {
		return "", usageError("--listen %s: other machines can reach this address, to which clients would send the token unencrypted; listen on a loopback address such as 127.0.0.1:0, or add --allow-remote", o.listen)
	}
	printf(stderr, "warning: --allow-remote: clients send the token to %s unencrypted\n", addr)
	if addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port)), nil
	}
	return addr.String(), nil
}

// printClientConfig prints the endpoints as clients want them in their configuration.
func printClientConfig(w io.Writer, host string, a *gateway.Access) error {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	out := map[string]map[string]server{"mcpServers": {}}
	for _, name := range a.Names() {
		out["mcpServers"][name] = server{"http", "http://" + host + a.Path(name), map[string]string{"Authorization": "Bearer " + a.Token()}}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
