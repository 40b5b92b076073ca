package acpagent

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// servers holds the MCP servers of a segment: how the agent is told about them, directly or behind
// the MCP gateway, and the verdict on each.
type servers struct {
	// all holds the servers of the task. hosted holds the names of those that the sandbox's setup
	// starts.
	all     []acp.MCPServer
	hosted  []string
	sandbox *agent.Sandbox
	// behind has the servers behind the gateway, and access is the agent's access to it; nil if they
	// are not behind it.
	behind *toolserver.Set
	access *gateway.Access
	// info receives the verdicts.
	info *record.Info
}

func newServers(seg agent.Segment, info *record.Info) *servers {
	return &servers{all: seg.Servers, hosted: seg.Hosted, sandbox: seg.Sandbox, info: info}
}

// gatewayPort is the gateway's port on the loopback of a sandbox without network.
const gatewayPort = 18435

// open puts the servers behind the gateway.
func (s *servers) open(g *gateway.Gateway, seg agent.Segment, clock *toolserver.Clock, o gateway.AccessOptions) (err error) {
	if s.behind, err = toolserver.Open(g, seg, clock, o); err != nil {
		return err
	}
	s.access = s.behind.Access
	config := &s.sandbox.Config
	if config.HasOwnLoopback() {
		socket := filepath.Join(s.sandbox.Sockets, "mcp.sock")
		if err := s.access.ServeUnix(socket); err != nil {
			return err
		}
		config.Forwards = append(slices.Clone(config.Forwards), sandbox.Forward{Port: gatewayPort, Socket: socket})
	}
	return nil
}

// declare returns the servers as the agent is told about them. They are the servers themselves, or
// the gateway's endpoints under their names: over HTTP, or over a bridge that the agent starts if
// it does not support HTTP.
func (s *servers) declare(caps acp.Capabilities) []acp.MCPServer {
	if s.access == nil {
		return s.all
	}
	var out []acp.MCPServer
	for _, server := range s.all {
		base := s.access.URL(server.Name)
		if s.sandbox.Config.HasOwnLoopback() {
			base = fmt.Sprintf("http://127.0.0.1:%d%s", gatewayPort, s.access.Path(server.Name))
		}
		p := acp.MCPServer{Name: server.Name, Meta: server.Meta}
		if caps.Accepts(acp.TransportHTTP) {
			p.Transport, p.URL, p.Headers = acp.TransportHTTP, base,
				[]acp.KeyValue{{Name: "Authorization", Value: "Bearer " + s.access.Token()}}
		} else {
			p.Transport, p.Command, p.Args = acp.TransportStdio, s.executable(), []string{gateway.BridgeCommand}
			p.Env = []acp.KeyValue{{Name: gateway.BridgeURLVar, Value: base}, {Name: gateway.BridgeTokenVar, Value: s.access.Token()}}
		}
		out = append(out, p)
	}
	return out
}

// executable returns the path of evalrun itself as the agent sees it.
func (s *servers) executable() string {
	if s.sandbox.Config.Isolated() {
		return sandbox.InsideExecutable
	}
	return s.sandbox.Executable
}

// behindGateway reports whether the agent reaches its servers through the gateway.
func (s *servers) behindGateway() bool { return s.access != nil }

// sharing counts the servers behind the gateway that have a tool of a name.
func (s *servers) sharing(tool string) int {
	if s.access == nil {
		return 0
	}
	return s.access.Sharing(tool)
}

// listed completes a tool that an agent names only by a title, as far as the servers list it with
// such arguments. Anything that they do not list stays unknown. A title may also be a tool's own
// name, if one server has it.
func (s *servers) listed(t tool, title string) tool {
	if s.access == nil || t.Name != "" && !t.byTitle {
		return t
	}
	var found []tool
	for _, e := range s.access.Endpoints() {
		server := e.Server().Name
		for name, listed := range e.Tools().Shown() {
			named := t.Server == server && t.Name == name || t.Server == "" && title == name
			if named && (isEmptyInput(t.Input) || listed.Takes(t.Input)) {
				found = append(found, tool{Server: server, Name: name, byTitle: true, Input: t.Input})
			}
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return tool{Input: t.Input}
}

// endpoint returns a server behind the gateway; nil if there is none of that name.
func (s *servers) endpoint(name string) *gateway.Endpoint {
	if s == nil || s.access == nil {
		return nil
	}
	return s.access.Endpoint(name)
}

// close ends the agent's access. Nobody uses its token any more.
func (s *servers) close() error {
	if s.behind == nil {
		return nil
	}
	return s.behind.Close()
}
