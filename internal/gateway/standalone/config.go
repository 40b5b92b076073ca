package standalone

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/tasks"
)

// Config is the content of a file of servers.
type Config struct {
	file    string
	servers []tasks.MCPServer
}

// ReadConfig reads the servers of a file. It finds settings that can never work before a client
// does. It returns the warnings with an error, too.
func ReadConfig(file string) (_ *Config, warnings input.Problems, err error) {
	config, problems := tasks.LoadMCPConfig(file)
	warnings = problems.Warnings()
	if err := problems.Err(false); err != nil {
		return nil, warnings, &input.Error{Err: err}
	}
	servers, problems := config.Expand(os.LookupEnv)
	r := input.Reader{Problems: problems}
	if problems == nil { // unknown values cannot be checked
		for i, s := range servers {
			checkServer(&r, s, func(keys ...string) *input.Node { return config.Place(i, keys...) })
		}
	}
	switch err := r.Problems.Err(false); {
	case err != nil:
		return nil, warnings, &input.Error{Err: err}
	case len(servers) == 0:
		return nil, warnings, input.Errorf("%s: there are no MCP servers in it", file)
	}
	return &Config{file, servers}, warnings, nil
}

// headerName matches the names that a header may have: RFC 9110, 5.1.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkServer finds out what is wrong with a server whose variables are resolved. Values of headers
// and variables are not shown: they may be secrets.
func checkServer(r *input.Reader, s tasks.MCPServer, place func(keys ...string) *input.Node) {
	if s.Transport == tasks.TransportStdio {
		if info, err := os.Stat(s.Cwd); s.Cwd != "" && (err != nil || !info.IsDir()) {
			r.Errorf(place("cwd"), "expected a folder, got %q", s.Cwd)
		} else if _, err := program(s); err != nil {
			r.Errorf(place("command"), "expected a program, got %q: %v", s.Command, err)
		}
		return
	}
	if s.Started() {
		r.Errorf(place("command"), "the gateway does not start a server that has a url; remove command, or url and its type")
	}
	if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		n := place("url")
		r.Errorf(n, "expected a URL of http or https such as https://example.com/mcp, got %q", n.Text)
	}
	for _, h := range s.Headers {
		n := place("headers", h.Name)
		if !headerName.MatchString(h.Name) {
			r.Errorf(n, "the name of a header may have letters, digits and !#$%%&'*+-.^_`|~ in it, nothing else")
		}
		if strings.ContainsFunc(h.Value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) { // RFC 9110, 5.5
			r.Errorf(n, "the value of a header may not have line breaks and other control characters in it")
		}
	}
}

// program is the path of the program of a stdio server. A relative path begins at the directory of
// the process.
func program(s tasks.MCPServer) (string, error) {
	path := s.Command
	if strings.Contains(path, "/") && !filepath.IsAbs(path) {
		var err error
		if path, err = filepath.Abs(filepath.Join(s.Cwd, path)); err != nil {
			return "", err
		}
	}
	path, err := exec.LookPath(path)
	var reason *exec.Error
	if errors.As(err, &reason) {
		return "", reason.Err
	}
	return path, err
}

// reached returns the servers as the gateway reaches them. The processes that it starts for them
// bear the mark.
func (c *Config) reached(o Options, mark string) []gateway.Server {
	var out []gateway.Server
	for _, s := range c.servers {
		server := gateway.Server{
			Name: s.Name, Filter: gateway.Filter{Tools: s.Tools, IncludeTags: s.IncludeTags, ExcludeTags: s.ExcludeTags},
		}
		if s.Transport == tasks.TransportStdio {
			server.ChildProcess, server.MaxSessions = true, o.MaxSessions
			server.Target.Start = func(context.Context) (io.ReadWriteCloser, error) { return startStdio(s, mark, o.Stderr) }
		} else {
			server.Target = mcp.Target{URL: s.URL, SSE: s.Transport == tasks.TransportSSE, Header: http.Header{}}
			for _, h := range s.Headers {
				server.Target.Header.Add(h.Name, h.Value)
			}
		}
		out = append(out, server)
	}
	return out
}
