package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// What a server says that makes no sense harms nobody but the call that it answers.
func TestServerTalksNonsense(t *testing.T) {
	testenv.NeedSlow(t)
	for _, transport := range []string{"http", "stdio", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			nonsense := []string{
				`no JSON at all`, `{`, `[]`, `[1,2]`, `null`, `{}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"1.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":999,"result":{}}`,
				`{"jsonrpc":"2.0","id":"1","result":{}}`, `{"jsonrpc":"2.0","id":null,"result":{}}`, `{"jsonrpc":"2.0","id":{},"result":{}}`, `{"jsonrpc":"2.0","method":7}`,
				`{"jsonrpc":"2.0","id":1,"method":""}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":1}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}`,
				`{"jsonrpc":"2.0","method":"notifications/never/heard/of","params":null}`, "\x00\xff", strings.Repeat("[", 100000), `"` + strings.Repeat("x", 1<<20),
			}
			s := &rawServer{era: mcp.Legacy, serve: func(q *rawRequest) string {
				for _, text := range nonsense {
					q.say(text)
				}
				return echo(q)
			}}
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, transport)})
			for _, downstream := range []string{"http", "stdio"} {
				for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
					c := newClient(t, a, downstream, &rawClient{era: era})
					for i := range 3 {
						echoes(t, c, fmt.Sprintf(`{"a":%d}`, i))
					}
				}
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]string{
		"another id":        `{"jsonrpc":"2.0","id":4711,"result":{}}`,
		"no JSON":           `hello`,
		"result and error":  `{"jsonrpc":"2.0","id":%ID%,"result":{},"error":{"code":1,"message":"x"}}`,
		"neither":           `{"jsonrpc":"2.0","id":%ID%}`,
		"without a version": `{"id":%ID%,"result":{}}`,
		"nothing":           ``,
	} {
		t.Run(name, func(t *testing.T) {
			bad := true
			s := &rawServer{era: mcp.Legacy, serve: echo}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if m := (rawMessage{}); bad && json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, strings.Replace(answer, "%ID%", string(m.ID), 1))
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				s.serveHTTP(w, r)
			}))
			defer server.Close()
			a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: server.URL}})
			c := newClient(t, a, "http", &rawClient{era: mcp.Legacy})
			fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{}`, "")), "raw", "not valid")
			bad = false
			echoes(t, c, `{"a":1}`)
		})
	}
}

// Schemas that no library takes are the client's business.
func TestOddSchemasGoThrough(t *testing.T) {
	const tools = `[{"name":"a"},{"name":"b","inputSchema":null},{"name":"c","inputSchema":{}},{"name":"d","inputSchema":true},{"name":"e","inputSchema":[1]},` +
		`{"name":"f","inputSchema":{"$ref":"http://127.0.0.1:1/x"},"outputSchema":7},{"name":7},"no tool",null]`
	eachEra(t, func(t *testing.T, client, server mcp.Era) {
		s := &rawServer{era: server, serve: func(q *rawRequest) string {
			if q.Method == "tools/list" {
				return `"result":{"resultType":"complete","tools":` + tools + `}`
			}
			return echo(q)
		}}
		a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "http")})
		c := newClient(t, a, "http", &rawClient{era: client})
		if m := c.call("tools/list", c.params("", "")); !strings.Contains(string(m.Result), `"tools":`+tools) {
			t.Errorf("tools/list: %s %s", m.Result, m.Error)
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if m := c.call("tools/call", c.params(`"name":"`+name+`","arguments":{"x":1}`, "")); m.Error != nil {
				t.Errorf("%s: %s", name, m.Error)
			}
		}
	})
}

// A tool that the filters hide cannot be called, whether the client has listed the tools or not.
func TestHiddenToolsCannotBeCalled(t *testing.T) {
	eachEra(t, func(t *testing.T, client, server mcp.Era) {
		s := &rawServer{era: server, serve: func(q *rawRequest) string {
			if q.Method == "tools/list" {
				return `"result":{"resultType":"complete","tools":[{"name":"echo","_meta":{"tags":["safe"]}},{"name":"rm","_meta":{"tags":["danger"]}},{"name":"plain"}]}`
			}
			return echo(q)
		}}
		for name, filter := range map[string]gateway.Filter{
			"excluded by its tag": {ExcludeTags: []string{"danger"}}, "without a tag to include": {IncludeTags: []string{"safe"}}, "not named": {Tools: []string{"echo"}},
		} {
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "http"), Filter: filter})
			c := newClient(t, a, "http", &rawClient{era: client})
			for range 2 {
				fails(t, c.call("tools/call", c.params(`"name":"rm","arguments":{}`, "")), "Unknown tool: rm")
				echoes(t, c, `{"a":1}`)
				if m := c.call("tools/list", c.params("", "")); !strings.Contains(string(m.Result), `"echo"`) || strings.Contains(string(m.Result), `"rm"`) {
					t.Errorf("%s: tools/list: %s %s", name, m.Result, m.Error)
				}
			}
		}
	})
}

// What a client sends that makes no sense is refused, and the next call works.
func TestClientTalksNonsense(t *testing.T) {
	s := &rawServer{era: mcp.Legacy, serve: echo}
	a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "stdio")})
	for _, transport := range []string{"http", "stdio", "bridge"} {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			c := newClient(t, a, transport, &rawClient{era: era})
			for _, text := range []string{
				`{`, `nothing`, `[]`, `7`, `{"jsonrpc":"2.0","id":{},"method":"tools/call"}`, `{"jsonrpc":"2.0","id":7}`, `{"id":7,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":true,"method":"tools/call","params":[]}`, `{"jsonrpc":"2.0","id":"never asked","result":{}}`,
			} {
				if transport != "http" {
					if err := c.send(text, nil); err != nil {
						t.Fatal(err)
					}
					continue
				}
				req, err := http.NewRequest(http.MethodPost, a.URLWithToken("raw"), strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				if era == mcp.Modern {
					req.Header.Set("Mcp-Protocol-Version", mcp.Version2026_07_28)
				}
				if session := c.session.Load().(string); session != "" {
					req.Header.Set("Mcp-Session-Id", session)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode >= 500 {
					t.Errorf("%s: HTTP %d", text, resp.StatusCode)
				}
			}
			for _, params := range []string{`[]`, `"x"`, `{"arguments":{}}`, `{"name":7,"arguments":[]}`, `null`} {
				if m := c.call("tools/call", params); m.Error == nil && m.Result == nil {
					t.Errorf("%s was not answered", params)
				}
			}
			echoes(t, c, `{"a":1}`)
		}
	}
}
