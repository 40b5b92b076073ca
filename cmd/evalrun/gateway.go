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
	"strings"
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
}

func gatewayCommand(g *globals) *cobra.Command {
	var o gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway CONFIG",
		Short: "Serve the MCP servers of a file to any MCP client",
		Long: `Serve the MCP servers of CONFIG (mcpServers as Claude has it, in JSON, YAML or TOML) over streamable HTTP, each at an endpoint of its own,
to clients of every version of MCP. ${NAME} in url, headers and env is taken from the environment.

When it is ready it prints the servers as an MCP client's configuration wants them, with the token that clients must bear. A client that cannot
send headers may call /t/TOKEN/mcp/NAME instead. It ends with Ctrl-C.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "listen on `ADDRESS`; a port of 0 takes a free one")
	f.StringVar(&o.tokenFile, "token-file", "", "take the token from `FILE` instead of making one")
	return cmd
}

func (o *gatewayFlags) run(ctx context.Context, stdout, stderr io.Writer, config string) (err error) {
	token, err := o.token()
	if err != nil {
		return err
	}
	servers, err := gatewayServers(config, stderr)
	if err != nil {
		return err
	}
	gw, err := gateway.Listen(o.listen)
	if err != nil {
		return usageError("--listen: %w", err)
	}
	defer func() { err = errors.Join(err, gw.Close()) }()
	access, err := gw.Open(gateway.AccessOptions{Servers: servers, Token: token})
	if err != nil {
		return usageError("%s: %w", config, err)
	}
	if err := printClientConfig(stdout, access); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// minToken is how long a token must be that somebody has chosen.
const minToken = 16

func (o *gatewayFlags) token() (string, error) {
	if o.tokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return "", usageError("--token-file: %w", unreadable(o.tokenFile, err))
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n/") {
		return "", usageError("--token-file: %s: expected a token of at least %d characters without spaces and slashes", o.tokenFile, minToken)
	}
	return token, nil
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
	for _, e := range a.Endpoints() {
		out["mcpServers"][e.Name()] = server{"http", a.URL(e.Name()), map[string]string{"Authorization": "Bearer " + a.Token()}}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
