// Package toolserver puts the MCP servers of a rollout behind the gateway for an agent, and makes
// results of what is delivered for the calls that have waited. It knows neither how an agent calls
// tools nor how it is told of results.
package toolserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
)

// Set is the servers of a segment behind the gateway. It must be closed.
type Set struct {
	Access *gateway.Access
	// closeIdle closes the idle connections to servers in the sandbox.
	closeIdle []func()
}

// Open puts the servers of a segment behind the gateway. It changes the configuration of the
// segment's sandbox, which is not started yet, so that the servers in it can be reached. Servers
// are told by clock how long somebody waits for the answer to a call.
func Open(g *gateway.Gateway, seg agent.Segment, clock *Clock, o gateway.AccessOptions) (*Set, error) {
	s := &Set{}
	header := func() (map[string]string, error) { return callHeader(seg, clock) }
	for i, server := range seg.Servers {
		o.Servers = append(o.Servers,
			gateway.Server{Name: server.Name, Filter: seg.Gateway.Filters[server.Name], CallHeader: header})
		behind := &o.Servers[i]
		switch server.Transport {
		case acp.TransportStdio:
			behind.ChildProcess = true
			behind.Target.Start = spawn(seg.Sandbox, i, server)
		default:
			behind.Target.URL, behind.Target.SSE, behind.Target.Header =
				server.URL, server.Transport == acp.TransportSSE, http.Header{}
			for _, h := range server.Headers {
				behind.Target.Header.Add(h.Name, h.Value)
			}
			behind.Target.Header.Set(mcp.HeaderCallingJob, seg.RolloutID)
			if slices.Contains(seg.Hosted, server.Name) {
				behind.ChildProcess = true
				if err := s.expose(seg.Sandbox, i, server.URL, &behind.Target); err != nil {
					return nil, err
				}
			}
		}
	}
	var err error
	s.Access, err = g.Open(o)
	return s, err
}

// callHeader returns the header that tells a server how long somebody waits for the answer to a
// call: for the working time that is left, within the deadline of the run.
func callHeader(seg agent.Segment, clock *Clock) (map[string]string, error) {
	deadline := clock.Deadline()
	if run := seg.Gateway.Deadline; deadline.IsZero() || !run.IsZero() && run.Before(deadline) {
		deadline = run
	}
	return wait.CallHeaders(seg.RolloutID, deadline, time.Now())
}

// spawn makes the way to a stdio server, which is started in the sandbox for each connection.
func spawn(box *agent.Sandbox, i int, server acp.MCPServer) func(context.Context) (io.ReadWriteCloser, error) {
	socket := filepath.Join(box.Sockets, fmt.Sprintf("stdio-%d.sock", i))
	c := sandbox.SetupCommand{Args: append([]string{server.Command}, server.Args...), Dir: cmp.Or(server.Cwd, box.Cwd)}
	for _, kv := range server.Env {
		c.Env = append(c.Env, kv.Name+"="+kv.Value)
	}
	box.Config.Spawns = append(slices.Clone(box.Config.Spawns), sandbox.Spawn{Socket: socket, Command: c})
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return dialUnix(ctx, socket) }
}

// expose makes the way to an HTTP server that is started in a sandbox without this machine's
// network.
func (s *Set) expose(box *agent.Sandbox, i int, raw string, target *mcp.Target) error {
	if !box.Config.HasOwnLoopback() {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fault.New(fault.MCP, "its url is none")
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[bool]int{true: 443, false: 80}[u.Scheme == "https"]
	}
	socket := filepath.Join(box.Sockets, fmt.Sprintf("http-%d.sock", i))
	box.Config.Exposes = append(slices.Clone(box.Config.Exposes), sandbox.Expose{Socket: socket, Port: port})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialUnix(ctx, socket)
	}}
	s.closeIdle = append(s.closeIdle, transport.CloseIdleConnections)
	target.HTTPClient = &http.Client{Transport: transport}
	return nil
}

func dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socket)
}

// Close ends the access. Nobody uses its token any more.
func (s *Set) Close() error {
	for _, closeIdle := range s.closeIdle {
		closeIdle()
	}
	s.closeIdle = nil
	if s.Access == nil {
		return nil
	}
	return s.Access.Close()
}
