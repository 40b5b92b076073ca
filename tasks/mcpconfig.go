package tasks

import (
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/input"
)

// MCPConfig is a file that declares MCP servers.
type MCPConfig struct {
	Servers []MCPServer
	// nodes are where they stand.
	nodes []*input.Node
}

// LoadMCPConfig reads the file of --mcp-config: {"mcpServers": {name: {…}}} as Claude has it, a list or map mcp_servers,
// or [[environment.mcp_servers]] as in task.toml; in JSON, YAML or TOML, by the file's extension. Other keys of the file are
// not looked at. If one of the problems is not a warning the servers are not to be used.
func LoadMCPConfig(file string) (*MCPConfig, input.Problems) {
	c := &MCPConfig{}
	data, err := readFile(file)
	if err != nil {
		return c, input.Problems{{File: file, Message: "cannot be read: " + reason(err)}}
	}
	parse := input.Parse
	if strings.EqualFold(filepath.Ext(file), ".toml") {
		parse = parseTOML
	}
	root, err := parse(file, data)
	if err != nil {
		return c, asProblems(file, err)
	}
	var r input.Reader
	top := open(&r, root)
	n := top.Get("mcpServers") // or mcp_servers
	for _, table := range []string{"environment", "sandbox"} {
		if t := top.Get(table); n == nil && t != nil {
			n = t.Member("mcp_servers")
		}
	}
	switch {
	case r.Problems != nil:
	case n == nil:
		r.Errorf(root, "there are no MCP servers in the file; expected mcpServers, mcp_servers or environment.mcp_servers")
	case n.Kind == input.Array:
		c.Servers, c.nodes = readServers(&r, n.Items, guessTransport), n.Items
	case n.Kind == input.Object:
		c.Servers = readServerMap(&r, n)
		for _, m := range n.Members {
			c.nodes = append(c.nodes, m.Value)
		}
	default:
		r.Errorf(n, "expected an object or an array of MCP servers, got %s", n.Kind)
	}
	return c, r.Problems
}

// Place is where the value below some keys of a server stands in the file, or as much of it as the file has.
func (c *MCPConfig) Place(server int, keys ...string) *input.Node {
	n := c.nodes[server]
	for _, key := range keys {
		m := n.Member(key)
		if m == nil {
			break
		}
		n = m
	}
	return n
}

// Expand resolves what the servers refer to, as [ExpandServer] does, with the variables of the environment.
func (c *MCPConfig) Expand(environment Lookup) ([]MCPServer, input.Problems) {
	var r input.Reader
	var out []MCPServer
	for i, s := range c.Servers {
		x := expansion{reference: partReference, lookup: environment}
		x.server(&s)
		for _, m := range x.missing {
			r.Errorf(c.Place(i, m.keys...), "the variable ${%s} is not set in the environment; set it, or give a default: ${%s:-…}", m.name, m.name)
		}
		out = append(out, s)
	}
	return out, r.Problems
}
