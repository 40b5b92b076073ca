package tasks

import (
	"fmt"
	"strings"
	"testing"
)

func server(lines ...string) string {
	return "[[environment.mcp_servers]]\nname = 'a'\n" + strings.Join(lines, "\n")
}

// The vectors M1 to M23.
func TestMCPServers(t *testing.T) {
	one := func(t *testing.T, lines ...string) MCPServer {
		t.Helper()
		return accepted(t, server(lines...)).Environment.MCPServers[0]
	}
	const url = "url = 'http://x/mcp'"
	t.Run("M1 sse without url", func(t *testing.T) {
		problem(t, server("transport = 'sse'"), "1:1: environment.mcp_servers[0].url: 'url' is required for transport 'sse'")
	})
	t.Run("M2 streamable-http without url", func(t *testing.T) {
		problem(t, server("transport = 'streamable-http'"), "1:1: environment.mcp_servers[0].url: 'url' is required for transport 'streamable-http'")
	})
	t.Run("M3 stdio without command", func(t *testing.T) {
		problem(t, server("transport = 'stdio'"), "1:1: environment.mcp_servers[0].command: 'command' is required for transport 'stdio'")
	})
	t.Run("M4 M5 url given", func(t *testing.T) {
		equal(t, "sse", one(t, "transport = 'sse'", url), MCPServer{Name: "a", Transport: TransportSSE, URL: "http://x/mcp"})
		equal(t, "http", one(t, "transport = 'streamable-http'", url), MCPServer{Name: "a", Transport: TransportHTTP, URL: "http://x/mcp"})
	})
	t.Run("M6 http", func(t *testing.T) {
		equal(t, "transport", one(t, "transport = 'http'", url).Transport, TransportHTTP)
	})
	t.Run("M7 other spellings", func(t *testing.T) {
		problem(t, server("transport = 'streamable_http'", url),
			`3:13: environment.mcp_servers[0].transport: expected one of stdio, sse, streamable-http, got "streamable_http"; did you mean "streamable-http"?`)
		problem(t, server("transport = 'HTTP'", url), "3:13: environment.mcp_servers[0].transport: expected one of")
	})
	t.Run("M8 arguments", func(t *testing.T) {
		equal(t, "server", one(t, "transport = 'stdio'", "command = 'npx'", "args = ['-y', 'x']"), MCPServer{Name: "a", Transport: TransportStdio, Command: "npx", Args: []string{"-y", "x"}})
	})
	t.Run("M9 M10 defaults", func(t *testing.T) {
		equal(t, "server", one(t, url), MCPServer{Name: "a", Transport: TransportSSE, URL: "http://x/mcp"})
	})
	t.Run("M11 M14 none", func(t *testing.T) {
		equal(t, "servers", accepted(t, "version = '1.0'\n[environment]").Environment.MCPServers, []MCPServer(nil))
	})
	t.Run("M12 M13 order", func(t *testing.T) {
		servers := accepted(t, server(url)+"\n[[environment.mcp_servers]]\nname = 'A'\n"+url).Environment.MCPServers
		equal(t, "names", []string{servers[0].Name, servers[1].Name}, []string{"a", "A"})
	})
	t.Run("M15 empty url", func(t *testing.T) {
		problem(t, server("url = ''"), "3:7: environment.mcp_servers[0].url: 'url' is required")
	})
	t.Run("M16 a server that evalrun starts", func(t *testing.T) {
		s := one(t, "transport = 'http'", url, "command = 'serve'", "args = ['--port', '1']", "cwd = '/app'", "env = { B = '1', A = '2' }")
		equal(t, "server", s, MCPServer{Name: "a", Transport: TransportHTTP, URL: "http://x/mcp", Command: "serve", Args: []string{"--port", "1"},
			Cwd: "/app", Env: []KeyValue{{"B", "1"}, {"A", "2"}}})
		if !s.Started() || one(t, url).Started() || one(t, "transport = 'stdio'", "command = 'x'").Started() {
			t.Error("evalrun starts a server with a url and a command, and no other")
		}
		problem(t, server("transport = 'stdio'", "command = 'x'", url), "1:1: warning: environment.mcp_servers[0]: url and headers mean nothing")
	})
	t.Run("M17 M18 names", func(t *testing.T) {
		problem(t, server(url)+"\n"+server(url), `5:8: environment.mcp_servers[1].name: there is another MCP server "a", in line 1`)
		for _, name := range []string{"", "  "} {
			problem(t, "[[environment.mcp_servers]]\nname = '"+name+"'\n"+url, "2:8: environment.mcp_servers[0].name: expected a string that is not")
		}
		problem(t, "[[environment.mcp_servers]]\n"+url, "1:1: environment.mcp_servers[0].name: missing")
	})
	t.Run("M19 unknown key", func(t *testing.T) {
		problem(t, server(url, "timeout = 5"), "4:1: warning: environment.mcp_servers[0].timeout: unknown key")
		problem(t, server(url, "comand = 'x'"), `4:1: warning: environment.mcp_servers[0].comand: unknown key; did you mean "command"?`)
	})
	t.Run("M20 numbers", func(t *testing.T) {
		problem(t, server(url, "args = [1]"), "4:9: environment.mcp_servers[0].args[0]: expected a string, got a number")
		problem(t, server(url, "env = { A = 1 }"), "4:13: environment.mcp_servers[0].env.A: expected a string, got a number")
	})
	t.Run("M21 filters that let nothing pass", func(t *testing.T) {
		for _, name := range []string{"tools", "include_tags", "exclude_tags"} {
			problem(t, server(url, name+" = []"), "4:"+place(name)+": environment.mcp_servers[0]."+name+": MCP tool filters must contain at least one entry")
			problem(t, server(url, name+" = [' ', '']"), "4:"+place(name)+": environment.mcp_servers[0]."+name+": MCP tool filters must contain")
		}
	})
	t.Run("M22 filters are trimmed", func(t *testing.T) {
		equal(t, "tools", one(t, url, "tools = [' a ', '']").Tools, []string{"a"})
	})
	t.Run("M23 variables stay until the server is started", func(t *testing.T) {
		equal(t, "env", one(t, url, "env = { T = '${TOK}' }").Env, []KeyValue{{"T", "${TOK}"}})
	})
}

func place(name string) string {
	return map[string]string{"tools": "9", "include_tags": "16", "exclude_tags": "16"}[name]
}

// The vectors L1 to L3, and what people write besides. Unlike in Harbor, env and headers are kept.
func TestMCPConfig(t *testing.T) {
	for _, v := range []struct {
		name, file, document string
		want                 []MCPServer
		problems             []string
	}{
		{"L1 Claude's JSON", ".mcp.json", `{"mcpServers": {"github": {"command": "npx", "args": ["-y", "github-mcp"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}},
			"api": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}}}, "other": 1}`,
			[]MCPServer{
				{Name: "github", Transport: TransportStdio, Command: "npx", Args: []string{"-y", "github-mcp"}, Env: []KeyValue{{"GITHUB_TOKEN", "${GITHUB_TOKEN}"}}},
				{Name: "api", Transport: TransportHTTP, URL: "https://example.com/mcp", Headers: []KeyValue{{"Authorization", "Bearer x"}}},
			}, nil},
		{"L2 YAML", "mcp.yaml", "mcp_servers:\n  - name: api\n    transport: sse\n    url: https://example.com/sse\n",
			[]MCPServer{{Name: "api", Transport: TransportSSE, URL: "https://example.com/sse"}}, nil},
		{"L3 TOML", "mcp.toml", "[[environment.mcp_servers]]\nname = \"api\"\ntransport = \"streamable-http\"\nurl = \"https://example.com/mcp\"\n[agent]\ntimeout_sec = 0",
			[]MCPServer{{Name: "api", Transport: TransportHTTP, URL: "https://example.com/mcp"}}, nil},
		{"a list without transport", "mcp.json", `{"mcp_servers": [{"name": "a", "command": "x"}]}`, []MCPServer{{Name: "a", Transport: TransportStdio, Command: "x"}}, nil},
		{"sandbox", "mcp.toml", "[[sandbox.mcp_servers]]\nname = 'a'\ntransport = 'http'\nurl = 'u'", []MCPServer{{Name: "a", Transport: TransportHTTP, URL: "u"}}, nil},
		{"a url without type", "mcp.json", `{"mcpServers": {"a": {"url": "u"}}}`, []MCPServer{{Name: "a", Transport: TransportHTTP, URL: "u"}}, nil},
		{"neither command nor url", "mcp.json", `{"mcpServers": {"a": {}}}`, []MCPServer{{Name: "a", Transport: TransportHTTP}},
			[]string{"mcp.json:1:22: mcpServers.a.url: 'url' is required for transport 'streamable-http'"}},
		{"VS Code's JSON, with comments and trailing commas", "mcp.json", `{
			// what VS Code asks for
			"inputs": [], /* none */
			"servers": {"a": {"type": "http", "url": "http://x/*/mcp", "hedaers": {},},},
			}`, []MCPServer{{Name: "a", Transport: TransportHTTP, URL: "http://x/*/mcp"}}, []string{`mcp.json:4:63: warning: servers.a.hedaers: unknown key; did you mean "headers"?`}},
		{"Gemini's JSON", "settings.json", `{"mcpServers": {"a": {"httpUrl": "u", "url": "v"}, "b": {"httpUrl": "u"}}}`,
			[]MCPServer{{Name: "a", Transport: TransportHTTP, URL: "u"}, {Name: "b", Transport: TransportHTTP, URL: "u"}}, nil},
		{"a comment that does not end", "mcp.json", "{\n/* \n}", nil, []string{"mcp.json:2:1: "}},
		{"servers that are switched off", "mcp.json", `{"mcpServers": {"a": {"command": "x", "disabled": true}, "b": {"command": "x", "enabled": false, "typo": 1}, "c": {"command": "x", "disabled": false, "enabled": true}}}`,
			[]MCPServer{{Name: "c", Transport: TransportStdio, Command: "x"}}, nil},
		{"a list with one that is switched off", "mcp.toml", "[[mcp_servers]]\nname = 'a'\nenabled = false\n[[mcp_servers]]\nname = 'b'\ncommand = 'x'", []MCPServer{{Name: "b", Transport: TransportStdio, Command: "x"}}, nil},
		{"a switch that is none", "mcp.json", `{"mcpServers": {"a": {"command": "x", "disabled": "yes"}}}`, []MCPServer{{Name: "a", Transport: TransportStdio, Command: "x"}},
			[]string{"mcp.json:1:51: mcpServers.a.disabled: expected a boolean, got a string"}},
		{"blank name", "mcp.json", `{"mcpServers": {"": {"command": "x"}}}`, []MCPServer{{Transport: TransportStdio, Command: "x"}},
			[]string{"mcp.json:1:21: mcpServers.: expected a name of the MCP server that is not blank"}},
		{"a name twice", "mcp.json", `{"mcpServers": {"a": {"command": "x"}, "a": {"command": "x"}}}`, nil, []string{"mcp.json:1:40: mcpServers.a: the key is given twice"}},
		{"no servers", "mcp.json", `{"server": {}}`, nil, []string{"mcp.json:1:1: there are no MCP servers in the file; expected mcpServers, servers, mcp_servers or environment.mcp_servers"}},
		{"not an object", "mcp.json", `[]`, nil, []string{"mcp.json:1:1: expected an object, got an array"}},
		{"servers that are a string", "mcp.json", `{"mcpServers": "x"}`, nil, []string{"mcp.json:1:16: mcpServers: expected an object or an array of MCP servers, got a string"}},
		{"a server that is a string", "mcp.json", `{"mcpServers": {"a": "x"}}`, []MCPServer{{Name: "a", Transport: TransportHTTP}}, []string{"mcp.json:1:22: mcpServers.a: expected an object, got a string"}},
		{"not TOML", "mcp.toml", "a = ", nil, []string{"mcp.toml:1:4: not valid TOML"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			file := write(t, t.TempDir(), v.file, v.document)
			config, problems := LoadMCPConfig(file)
			equal(t, "servers", config.Servers, v.want)
			if len(problems) != len(v.problems) {
				t.Fatalf("got problems %v", problems)
			}
			for i, p := range problems {
				if !strings.HasPrefix(strings.TrimPrefix(p.Error(), strings.TrimSuffix(file, v.file)), v.problems[i]) {
					t.Errorf("got %v\nwant %s", p, v.problems[i])
				}
			}
		})
	}
	if _, problems := LoadMCPConfig(t.TempDir() + "/none.json"); problems.Err(false) == nil {
		t.Error("a file that is not there is a problem")
	}
}

// Given a file whose servers name variables, when they are expanded with an environment, then each
// that is missing is said with its place in the file.
func TestMCPConfigExpand(t *testing.T) {
	file := write(t, t.TempDir(), "mcp.yaml", "mcpServers:\n  a.b:\n    type: http\n    url: http://${HOST}/${VV}\n    headers:\n      X.Y: ${NOPE} ${VV}\n      Z: ${NOPE:-z}\n")
	config, problems := LoadMCPConfig(file)
	if problems != nil {
		t.Fatal(problems)
	}
	servers, problems := config.Expand(lookup)
	equal(t, "servers", servers, []MCPServer{{Name: "a.b", Transport: TransportHTTP, URL: "http:///v", Headers: []KeyValue{{"X.Y", " v"}, {"Z", "z"}}}})
	equal(t, "declared", config.Servers[0].Headers[0].Value, "${NOPE} ${VV}")
	want := file + ":4:10: mcpServers.a.b.url: the variable ${HOST} is not set in the environment; set it, or give a default: ${HOST:-…}\n" +
		file + ":6:12: mcpServers.a.b.headers.X.Y: the variable ${NOPE} is not set in the environment; set it, or give a default: ${NOPE:-…}"
	equal(t, "problems", problems.Error(), want)

	// In command and args, too, and as VS Code writes it. What an editor would ask for is
	// refused.
	file = write(t, t.TempDir(), "mcp.json", `{"servers": {"a": {"command": "${VV}", "args": ["--x=${env:VV}", "$VV", "${NOPE}"]},
"b": {"command": "x", "env": {"T": "${input:token}"}}}}`)
	config, _ = LoadMCPConfig(file)
	servers, problems = config.Expand(lookup)
	equal(t, "args", servers[0], MCPServer{Name: "a", Transport: TransportStdio, Command: "v", Args: []string{"--x=v", "$VV", ""}})
	equal(t, "declared", config.Servers[0].Args[0], "--x=${env:VV}")
	want = file + ":1:73: servers.a.args[2]: the variable ${NOPE} is not set in the environment; set it, or give a default: ${NOPE:-…}\n" +
		file + ":2:36: servers.b.env.T: ${input:token} is what an editor asks its user for; put it into a variable of the environment, and write ${NAME}"
	equal(t, "problems", problems.Error(), want)
}

func TestPlaceInAConfig(t *testing.T) {
	config, _ := LoadMCPConfig(write(t, t.TempDir(), "mcp.yaml", "mcpServers:\n  a.b:\n    url: u\n    headers: {Z: z}\n"))
	equal(t, "a key that is not there", config.Place(0, "headers", "none").Path, "mcpServers.a.b.headers")
}

func TestMergeServers(t *testing.T) {
	task := []MCPServer{{Name: "a", URL: "1"}, {Name: "b", URL: "2"}}
	got := MergeServers(task, []MCPServer{{Name: "b", URL: "3"}, {Name: "c", URL: "4"}})
	equal(t, "servers", got, []MCPServer{{Name: "a", URL: "1"}, {Name: "b", URL: "3"}, {Name: "c", URL: "4"}})
	equal(t, "the task's own", task[1].URL, "2")
}

// T29: a credential that is in the file is no error here, as it is in Harbor 0.25, but is told.
func TestLiteralCredentials(t *testing.T) {
	const server = "[[environment.mcp_servers]]\nname = 'a'\nurl = 'http://a/mcp'\nheaders = { %s }"
	for header, warned := range map[string]bool{
		`Authorization = "Bearer x"`: true, `X-Api-Key = "x"`: true, `Authorization = "Bearer ${TOKEN}"`: false, `X-Run = "smoke"`: false,
	} {
		_, problems := read(t, fmt.Sprintf(server, header))
		if got := len(problems) == 1 && strings.Contains(problems[0].Error(), "seems to be a credential"); got != warned || problems.Err(false) != nil {
			t.Errorf("%s: %v", header, problems)
		}
	}
}
