package tasks

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/evalrun/evalrun/internal/input"
)

// MCPConfig is a file that declares MCP servers.
type MCPConfig struct {
	Servers []MCPServer
	// nodes are their places in the file.
	nodes []*input.Node
}

// LoadMCPConfig reads the file of --mcp-config: {"mcpServers": {name: {…}}} as Claude and Gemini
// have it, {"servers": {name: {…}}} as VS Code does, a list or map mcp_servers, or
// [[environment.mcp_servers]] as in task.toml; in JSON, YAML or TOML, by the file's extension. JSON
// may have comments and trailing commas. Servers that are switched off are left out, and other keys
// of the file are not looked at. If one of the problems is not a warning the servers are not to be
// used.
func LoadMCPConfig(file string) (*MCPConfig, input.Problems) {
	c := &MCPConfig{}
	data, err := readFile(file)
	if err != nil {
		return c, input.Problems{{File: file, Message: "cannot be read: " + reason(err)}}
	}
	parse := input.Parse
	switch strings.ToLower(filepath.Ext(file)) {
	case ".toml":
		parse = parseTOML
	case ".yaml", ".yml":
	default:
		// Comments and commas become spaces. If this fails, the parser says what is wrong.
		if standard, err := hujson.Standardize(data); err == nil {
			data = standard
		}
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
	if n == nil {
		n = top.Get("servers")
	}
	switch {
	case r.Problems != nil:
	case n == nil:
		r.Errorf(root,
			"there are no MCP servers in the file; expected mcpServers, servers, mcp_servers or environment.mcp_servers")
	case n.Kind == input.Array:
		c.nodes = slices.DeleteFunc(slices.Clone(n.Items), func(item *input.Node) bool { return isOff(&r, item) })
		c.Servers = readServers(&r, c.nodes, guessTransport)
	case n.Kind == input.Object:
		on := slices.DeleteFunc(slices.Clone(n.Members), func(m input.Member) bool { return isOff(&r, m.Value) })
		c.Servers = readServerMap(&r, on)
		for _, m := range on {
			c.nodes = append(c.nodes, m.Value)
		}
	default:
		r.Errorf(n, "expected an object or an array of MCP servers, got %s", n.Kind)
	}
	return c, r.Problems
}

// isOff reports whether a server is switched off: by "disabled": true or "enabled": false. The rest
// of it is then ignored.
func isOff(r *input.Reader, server *input.Node) bool {
	if server.Kind != input.Object {
		return false
	}
	f := r.Object(server)
	return f.Bool("disabled", false) || !f.Bool("enabled", true)
}

// Place returns the node of the value below some keys of a server, or of the nearest node that the
// file has.
func (c *MCPConfig) Place(server int, keys ...string) *input.Node {
	n := c.nodes[server]
	for _, key := range keys {
		m := n.Member(key)
		if i, err := strconv.Atoi(key); err == nil && i < len(n.Items) {
			m = n.Items[i]
		}
		if m == nil {
			break
		}
		n = m
	}
	return n
}

// configReference is a reference in a configuration. VS Code writes ${env:NAME}.
var configReference = regexp.MustCompile(`\$\{(?:env:)?([^}:]+)(?::-([^}]*))?\}`)

// inputReference matches a value that VS Code asks its user for.
var inputReference = regexp.MustCompile(`\$\{input:[^}]*\}`)

// Expand resolves the references of the servers, as [ExpandServer] does, with the variables of the
// environment; in command and args, too.
func (c *MCPConfig) Expand(environment Lookup) ([]MCPServer, input.Problems) {
	var r input.Reader
	var out []MCPServer
	for i, s := range c.Servers {
		x := expansion{reference: configReference, lookup: environment}
		x.server(&s)
		s.Command = x.value(s.Command, "command")
		s.Args = slices.Clone(s.Args)
		for j := range s.Args {
			s.Args[j] = x.value(s.Args[j], "args", strconv.Itoa(j))
		}
		c.refuseInputs(&r, c.nodes[i])
		for _, m := range x.missing {
			r.Errorf(c.Place(i, m.keys...),
				"the variable ${%s} is not set in the environment; set it, or give a default: ${%s:-…}",
				m.name, m.name)
		}
		out = append(out, s)
	}
	return out, r.Problems
}

// refuseInputs records every reference to an input, because nobody can be asked for one here.
func (c *MCPConfig) refuseInputs(r *input.Reader, n *input.Node) {
	if found := inputReference.FindString(n.Text); n.Kind == input.String && found != "" {
		r.Errorf(n, "%s is what an editor asks its user for; put it into a variable of the environment, and write ${NAME}",
			found)
	}
	for _, item := range n.Items {
		c.refuseInputs(r, item)
	}
	for _, m := range n.Members {
		c.refuseInputs(r, m.Value)
	}
}
