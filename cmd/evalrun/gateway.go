package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/gateway"
	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// gatewayFlags are those of `evalrun gateway`.
type gatewayFlags struct {
	listen    string
	tokenFile string
	aggregate bool
	tasks     gateway.TaskOptions
}

// aggregateName is the name of the endpoint that has what all servers have.
const aggregateName = "all"

func gatewayCommand(g *globals) *cobra.Command {
	var o gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway CONFIG",
		Short: "Serve the MCP servers of a file to any MCP client",
		Long: `Serve the MCP servers of CONFIG (mcpServers as Claude has it, in JSON, YAML or TOML) over streamable HTTP, each at an endpoint of its own,
to clients of every version of MCP. ${NAME} in url, headers and env is taken from the environment.

When it is ready it prints the servers as an MCP client's configuration wants them, with the token that clients must bear. A client that cannot
send headers may call /t/TOKEN/mcp/NAME instead. It ends with Ctrl-C.

Clients that know MCP tasks can have calls that take long as tasks, whatever the server knows; for others the gateway waits. Tasks and sessions are
kept in the store, and the token beside it, so that clients can go on when the gateway was started again.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, g, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "listen on `ADDRESS`; a port of 0 takes a free one")
	f.StringVar(&o.tokenFile, "token-file", "", "take the token from `FILE` instead of the one that is kept in the store")
	f.BoolVar(&o.aggregate, "aggregate", false, "serve the tools, prompts and resources of all servers at one endpoint more, "+aggregateName)
	f.DurationVar(&o.tasks.TTL, "task-ttl", gateway.DefaultTaskTTL, "keep tasks for `TIME` whose client does not say for how long")
	f.DurationVar(&o.tasks.MaxTTL, "max-task-ttl", gateway.DefaultMaxTaskTTL, "keep no task for longer than `TIME`")
	f.IntVar(&o.tasks.Max, "max-tasks", gateway.DefaultMaxTasks, "keep at most `N` tasks")
	f.IntVar(&o.tasks.MaxPerSession, "max-tasks-per-session", gateway.DefaultMaxSessionTasks, "keep at most `N` tasks of one session")
	f.BoolVar(&o.tasks.Strict, "require-task-capability", false, "refuse calls that need a task if a client of 2026-07-28 has not declared tasks, instead of waiting for it")
	return cmd
}

func (o *gatewayFlags) run(ctx context.Context, g *globals, stdout, stderr io.Writer, config string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	servers, err := gatewayServers(config, stderr)
	if err != nil {
		return err
	}
	st, err := g.open(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(st.Close())) }()
	token, err := gatewayToken(o.tokenFile, st.Dir())
	if err != nil {
		return err
	}
	unlock, err := lockGateway(st.Dir(), token)
	if err != nil {
		return err
	}
	defer unlock()
	gw, err := gateway.Listen(o.listen)
	if err != nil {
		return usageError("--listen: %w", err)
	}
	defer func() { err = errors.Join(err, gw.Close()) }()
	o.tasks.Store = st
	options := gateway.AccessOptions{Servers: servers, Token: token, Tasks: &o.tasks}
	if o.aggregate {
		options.Aggregate = aggregateName
	}
	access, err := gw.Open(options)
	if err != nil {
		return usageError("%s: %w", config, err)
	}
	if err := printClientConfig(stdout, access); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// check refuses what would be no limit.
func (o *gatewayFlags) check() error {
	for flag, value := range map[string]int64{
		"--task-ttl": int64(o.tasks.TTL), "--max-task-ttl": int64(o.tasks.MaxTTL), "--max-tasks": int64(o.tasks.Max), "--max-tasks-per-session": int64(o.tasks.MaxPerSession),
	} {
		if value <= 0 {
			return usageError("%s: expected more than 0", flag)
		}
	}
	// What was not given follows what was.
	if o.tasks.TTL == gateway.DefaultTaskTTL {
		o.tasks.TTL = min(o.tasks.TTL, o.tasks.MaxTTL)
	}
	if o.tasks.MaxPerSession == gateway.DefaultMaxSessionTasks {
		o.tasks.MaxPerSession = min(o.tasks.MaxPerSession, o.tasks.Max)
	}
	return nil
}

// gatewayServers reads the servers of a file.
func gatewayServers(config string, stderr io.Writer) ([]gateway.Server, error) {
	declared, problems := tasks.LoadMCPConfig(config)
	if err := problems.Err(false); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if len(declared) == 0 {
		return nil, usageError("%s: there are no MCP servers in it", config)
	}
	var out []gateway.Server
	for _, d := range declared {
		s, err := tasks.ExpandServer(d, os.LookupEnv)
		if err != nil {
			return nil, usageError("%s: %w", config, err)
		}
		server := gateway.Server{Name: s.Name, Filter: gateway.Filter{Tools: s.Tools, IncludeTags: s.IncludeTags, ExcludeTags: s.ExcludeTags}}
		if s.Transport == tasks.TransportStdio {
			server.Mortal = true
			server.Target.Start = func(context.Context) (io.ReadWriteCloser, error) { return startStdio(s, stderr) }
		} else {
			server.Target = mcp.Target{URL: s.URL, SSE: s.Transport == tasks.TransportSSE, Header: http.Header{}}
			for _, h := range s.Headers {
				server.Target.Header.Add(h.Name, h.Value)
			}
		}
		out = append(out, server)
	}
	return out, nil
}

// stdioServer is a server that runs as a process of this machine.
type stdioServer struct {
	io.Reader
	io.WriteCloser
	process *sandbox.Process
}

// stdioGrace is how long a server may take to end by itself once its stdin is closed.
const stdioGrace = 2 * time.Second

var errGatewayDone = errors.New("the gateway has no use for it any more")

// Close implements io.Closer: the process is ended and reaped.
func (s *stdioServer) Close() error {
	err := s.WriteCloser.Close()
	s.process.End(errGatewayDone, stdioGrace)
	_, waitErr := s.process.Wait(context.Background())
	return errors.Join(err, waitErr)
}

func startStdio(s tasks.MCPServer, stderr io.Writer) (io.ReadWriteCloser, error) {
	path, err := exec.LookPath(s.Command)
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	for _, kv := range s.Env {
		env = append(env, kv.Name+"="+kv.Value)
	}
	p, err := sandbox.Start(sandbox.Command{
		RolloutID: fmt.Sprintf("gateway-%d", os.Getpid()), Path: path, Args: append([]string{s.Command}, s.Args...), Dir: s.Cwd, Env: env, Interactive: true, Shared: true, Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	return &stdioServer{p.Stdout, p.Stdin, p}, nil
}

// printClientConfig prints the endpoints as clients want them in their configuration.
func printClientConfig(w io.Writer, a *gateway.Access) error {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
	}
	out := map[string]map[string]server{"mcpServers": {}}
	for _, name := range a.Names() {
		out["mcpServers"][name] = server{"http", a.URL(name), map[string]string{"Authorization": "Bearer " + a.Token()}}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
