package acpagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/record"
)

// check gives every server its verdict, before the first prompt.
func (s *servers) check(ctx context.Context, caps acp.Capabilities, launched *Launch) *fault.Fault {
	var f *fault.Fault
	for _, server := range s.all {
		v := record.ServerVerdict{Name: server.Name, Transport: string(server.Transport), Verdict: record.VerdictSent}
		if s.access != nil && !caps.Accepts(acp.TransportHTTP) {
			v.Verdict = record.VerdictBridged
		}
		switch why := s.unreachable(ctx, server, launched); {
		case s.access == nil && !caps.Accepts(server.Transport):
			v.Verdict, v.Reason = record.VerdictUnsupported,
				fmt.Sprintf("the agent does not advertise the transport %s (mcpCapabilities)", server.Transport)
		case why != "":
			v.Verdict, v.Reason = record.VerdictUnreachable, why
		}
		s.info.MCPServers = append(s.info.MCPServers, v)
		if v.Reason != "" && f == nil {
			f = fault.Newf(fault.MCP, "MCP server %q: %s", server.Name, v.Reason)
		}
	}
	if ctx.Err() != nil {
		return agent.CauseFault(ctx) // this is not the servers' fault
	}
	return f
}

// reachTimeout is how long a server may take to accept a connection.
const reachTimeout = 5 * time.Second

// unreachable says why an agent could not use a server, since agents do not report it and go on
// without the tools. Servers within a sandbox without network are not checked from outside.
func (s *servers) unreachable(ctx context.Context, server acp.MCPServer, launched *Launch) string {
	if server.Transport == acp.TransportStdio {
		return s.missingProgram(server, launched)
	}
	if slices.Contains(s.hosted, server.Name) || !s.sandbox.Config.Network && s.sandbox.Config.Isolated() {
		return ""
	}
	u, err := url.Parse(server.URL)
	if err != nil || u.Host == "" {
		return "its url is none"
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
	}
	dialer := net.Dialer{Timeout: reachTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "it cannot be reached: " + err.Error()
	}
	_ = conn.Close() // nothing was sent
	return ""
}

// missingProgram says why the program of a stdio server cannot be started where the agent lives.
// For programs of an image only a start can tell.
func (s *servers) missingProgram(server acp.MCPServer, launched *Launch) string {
	config, path := &launched.Sandbox.Config, ""
	if config.HasImage() {
		return ""
	}
	for _, kv := range launched.Environ {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, kv := range server.Env {
		if kv.Name == "PATH" {
			path = kv.Value
		}
	}
	folders := filepath.SplitList(path)
	if strings.Contains(server.Command, "/") {
		folders = []string{""}
	}
	why := ""
	for _, folder := range folders {
		inside := filepath.Join(folder, server.Command)
		if !filepath.IsAbs(inside) {
			inside = filepath.Join(cmp.Or(server.Cwd, s.sandbox.Cwd), inside)
		}
		host, bound := config.HostPath(inside)
		problem := program.NotExecutable(host)
		if problem == "" && !bound && !config.Shows(inside) {
			problem = "is not visible where the agent lives: name its folder in the agent's \"visible\", or use --isolation process"
		}
		switch {
		case problem == "":
			return ""
		case problem != program.Missing && why == "", len(folders) == 1:
			why = inside + " " + problem
		}
	}
	if why == "" {
		why = fmt.Sprintf("there is none of that name in PATH (folders: %d)", len(folders))
	}
	return fmt.Sprintf("its program %q cannot be started: %s", server.Command, why)
}

// invisibleFiles names the arguments of stdio servers that are files of this machine and not
// visible in the agent's environment.
func (s *servers) invisibleFiles(launched *Launch) (hint string) {
	if launched == nil {
		return ""
	}
	for _, server := range s.all {
		for _, arg := range server.Args {
			if !filepath.IsAbs(arg) || server.Transport != acp.TransportStdio {
				continue
			}
			host, bound := launched.Sandbox.Config.HostPath(arg)
			if info, err := os.Stat(host); err == nil && info.Mode().IsRegular() && !bound &&
				!launched.Sandbox.Config.Shows(arg) {
				hint += fmt.Sprintf(
					"; %s, an argument of MCP server %q, is a file of this machine that is not visible where the agent lives: name its folder in the agent's \"visible\", or use --isolation process",
					arg, server.Name)
			}
		}
	}
	return hint
}

// awaitTools waits until the agent has seen the tools of its servers, since some agents go on
// without them.
func (s *servers) awaitTools(ctx context.Context, limit time.Duration) *fault.Fault {
	if s.access == nil {
		return nil
	}
	errLate := errors.New("late")
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	err := s.access.Ready(waiting)
	var unreachable *gateway.UnreachableError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return agent.CauseFault(ctx)
	case errors.Is(err, errLate):
		return s.noTools(limit)
	case errors.As(err, &unreachable):
		s.note(unreachable.Server, record.VerdictUnreachable, unreachable.Err.Error())
	}
	return fault.New(fault.MCP, err.Error())
}

// noTools returns the fault of an agent that has not got the tools of some of its servers in time.
// Without it an agent would be scored that could do nothing.
func (s *servers) noTools(limit time.Duration) (f *fault.Fault) {
	for _, e := range s.access.Endpoints() {
		var why string
		switch ready, asked := e.Listed(); {
		case ready:
			continue
		case asked:
			why = fmt.Sprintf("its tools did not come within %v (handshakeTimeout)", limit)
		default:
			why = fmt.Sprintf("the agent has not asked for its tools within %v (handshakeTimeout)", limit)
		}
		s.note(e.Server().Name, record.VerdictNoTools, why)
		if f == nil {
			f = fault.Newf(fault.MCP, "MCP server %q: %s", e.Server().Name, why)
		}
	}
	return f
}

// note sets the verdict of a server.
func (s *servers) note(server string, verdict record.Verdict, reason string) {
	for i := range s.info.MCPServers {
		if v := &s.info.MCPServers[i]; v.Name == server {
			v.Verdict, v.Reason = verdict, reason
		}
	}
}

// report counts the calls that were held, and returns a fault if a server went away in the middle
// of a call.
func (s *servers) report() (lost *fault.Fault) {
	if s.access == nil {
		return nil
	}
	for i := range s.info.MCPServers {
		v := &s.info.MCPServers[i]
		e := s.access.Endpoint(v.Name)
		stats := e.Stats()
		v.Held = stats.Held
		if stats.Lost != "" && lost == nil {
			lost = fault.Newf(fault.MCP, "MCP server %q went away in the middle of a call: %s", v.Name, stats.Lost)
		}
	}
	return lost
}
