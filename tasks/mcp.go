package tasks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// The transports of MCP servers.
const (
	TransportStdio = "stdio"
	TransportSSE   = "sse"
	TransportHTTP  = "streamable-http"
)

// MCPServer is one of [[environment.mcp_servers]]: a server whose tools the agent gets.
type MCPServer struct {
	Name      string `json:"name"`
	Transport string `json:"transport"`
	URL       string `json:"url,omitempty"`
	// Command, Args, Cwd and Env are the program of a stdio server. A server with a URL that has a
	// Command as well is one that evalrun starts itself, in the environment, before the agent.
	Command string     `json:"command,omitempty"`
	Args    []string   `json:"args,omitempty"`
	Cwd     string     `json:"cwd,omitempty"`
	Env     []KeyValue `json:"env,omitempty"`
	Headers []KeyValue `json:"headers,omitempty"`
	// Tools, IncludeTags and ExcludeTags say which of the server's tools the agent gets; nil is all
	// of them.
	Tools       []string `json:"tools,omitempty"`
	IncludeTags []string `json:"include_tags,omitempty"`
	ExcludeTags []string `json:"exclude_tags,omitempty"`
}

// Started reports whether evalrun has to start the server before the agent can reach it.
func (s MCPServer) Started() bool { return s.Transport != TransportStdio && s.Command != "" }

// MergeServers adds servers to those of a task. A server replaces the task's server of the same
// name.
func MergeServers(task, added []MCPServer) []MCPServer {
	out := slices.Clone(task)
	for _, s := range added {
		if i := slices.IndexFunc(out, func(o MCPServer) bool { return o.Name == s.Name }); i >= 0 {
			out[i] = s
		} else {
			out = append(out, s)
		}
	}
	return out
}

// readServers reads a list of servers; otherwise returns the transport of one that does not name
// it.
func readServers(r *input.Reader, items []*input.Node, otherwise func(fields) string) []MCPServer {
	var out []MCPServer
	first := map[string]int{}
	for _, item := range items {
		f := open(r, item)
		name := strings.TrimSpace(f.RequiredString("name"))
		s := readServer(f, name, otherwise(f))
		for _, h := range s.Headers {
			if credential(h.Name) && h.Value != "" && !strings.Contains(h.Value, "${") {
				f.r.Warnf(f.Get("headers"),
					"%s seems to be a credential, which everybody who has the file can read; Harbor refuses it: write ${NAME}, and pass the variable with --env NAME",
					h.Name)
			}
		}
		f.Done()
		if n := f.Optional("name", input.String); n != nil && name == "" && n.Text != "" {
			r.Errorf(n, "expected a string that is not blank")
		}
		if line, again := first[name]; again && name != "" {
			r.Errorf(f.Get("name"), "there is another MCP server %q, in line %d; tools are told apart by their server's name",
				name, line)
			continue
		}
		first[name] = item.Line
		out = append(out, s)
	}
	return out
}

// readServerMap reads the map of Claude's files.
func readServerMap(r *input.Reader, members []input.Member) []MCPServer {
	var out []MCPServer
	for _, m := range members {
		f := open(r, m.Value)
		if strings.TrimSpace(m.Key) == "" {
			r.Errorf(m.Value, "expected a name of the MCP server that is not blank")
		}
		out = append(out, readServer(f, m.Key, guessTransport(f)))
		f.Done()
	}
	return out
}

// defaultTransport returns the transport of a server of task.toml that does not name it.
func defaultTransport(fields) string { return TransportSSE }

// guessTransport returns the transport of a server of --mcp-config that does not name it. SSE is
// tried anyway if streamable HTTP fails.
func guessTransport(f fields) string {
	f.Ignore("disabled", "enabled") // they were looked at before
	if f.Has("command") && !f.Has("url") && !f.Has("httpUrl") {
		return TransportStdio
	}
	return TransportHTTP
}

func readServer(f fields, name, otherwise string) MCPServer {
	s := MCPServer{ // Gemini calls the URL of streamable HTTP httpUrl, and takes it first
		Name: name, Transport: readTransport(f, otherwise),
		URL:     cmp.Or(f.String("httpUrl", ""), f.String("url", "")),
		Command: f.String("command", ""), Args: f.Strings("args"),
		Cwd: f.String("cwd", ""), Env: f.keyValues("env"), Headers: f.keyValues("headers"),
		Tools: readFilter(f, "tools"), IncludeTags: readFilter(f, "include_tags"), ExcludeTags: readFilter(f, "exclude_tags"),
	}
	if s.Transport == TransportStdio {
		f.need("command", s.Command, s.Transport)
		if s.URL != "" || s.Headers != nil {
			f.r.Warnf(f.Node, "url and headers mean nothing with transport %q", s.Transport)
			s.URL, s.Headers = "", nil
		}
		return s
	}
	f.need("url", s.URL, s.Transport)
	return s
}

// credential reports whether a header usually carries credentials.
func credential(header string) bool {
	name := strings.ToLower(header)
	return name == "cookie" || strings.Contains(name, "authorization") ||
		strings.HasSuffix(name, "-key") || strings.HasSuffix(name, "-token") ||
		strings.HasSuffix(name, "-secret")
}

// need records that a key is missing without which a transport cannot work.
func (f fields) need(name, value, transport string) {
	if value != "" || f.Node.Kind != input.Object {
		return
	}
	at := *or(f.Get(name), f.Node)
	at.Path = join(f.Node.Path, name)
	f.r.Errorf(&at, "'%s' is required for transport '%s'", name, transport)
}

func readTransport(f fields, otherwise string) string {
	name := "transport"
	if f.Has("type") && !f.Has(name) {
		name = "type"
	}
	n := f.Get(name)
	if n != nil && n.Kind == input.String && n.Text == "http" {
		return TransportHTTP
	}
	return f.Enum(name, otherwise, TransportStdio, TransportSSE, TransportHTTP)
}

// readFilter reads a list of names, without blank ones; an empty list would leave no tool.
func readFilter(f fields, name string) []string {
	n := f.Optional(name, input.Array)
	if n == nil {
		return nil
	}
	var out []string
	for _, entry := range f.Strings(name) {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	if out == nil {
		f.r.Errorf(n, "MCP tool filters must contain at least one entry; remove the key for all tools")
	}
	return out
}
