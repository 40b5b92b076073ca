package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/mcp"
)

// startCatalog is a server of the SDK with tools that say which they are, a prompt and a resource.
func startCatalog(t *testing.T, name string, tools ...string) (*sdk.Server, Server) {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: name, Version: "1"}, &sdk.ServerOptions{Instructions: "I am " + name})
	for _, tool := range tools {
		addTool(s, name, tool)
	}
	s.AddPrompt(&sdk.Prompt{Name: "greet"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Description: "of " + name}, nil
	})
	uri := "test://" + name
	s.AddResource(&sdk.Resource{Name: name, URI: uri}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, Text: "of " + name}}}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	t.Cleanup(h.Close)
	return s, Server{Name: name, Target: mcp.Target{URL: h.URL}}
}

func addTool(s *sdk.Server, server, tool string) {
	s.AddTool(&sdk.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: server + " " + tool}}}, nil
	})
}

func TestAggregate(t *testing.T) {
	long := strings.Repeat("long", 20)
	one, first := startCatalog(t, "a", "b_c", "Read File", long)
	_, second := startCatalog(t, "a_b", "c", "other")
	_, tasks := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	down := Server{Name: "down", Target: mcp.Target{URL: "http://127.0.0.1:1"}}
	g := &taskGateway{t: t, dir: t.TempDir(), options: AccessOptions{Servers: []Server{first, second, tasks, down}, Token: taskToken, Tasks: &TaskOptions{}, Aggregate: "all"}}
	g.start("127.0.0.1:0")
	t.Cleanup(g.stop)
	if got := g.access.Names(); !slices.Equal(got, []string{"a", "a_b", "tasks", "down", "all"}) {
		t.Error(got)
	}

	for _, version := range []string{mcp.Version2025_11_25, mcp.Version2026_07_28} {
		t.Run(version, func(t *testing.T) {
			changed := make(chan struct{}, 10)
			client := sdk.NewClient(&sdk.Implementation{Name: "c", Version: "1"}, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
			c, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: g.access.URLWithToken("all")}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := c.InitializeResult(); !strings.Contains(got.Instructions, "a: I am a\n") || got.Capabilities.Prompts == nil || got.Capabilities.Resources == nil {
				t.Errorf("%+v", got)
			}

			tools, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			of := map[string]string{} // names by what is called
			for _, tool := range tools.Tools {
				if len(tool.Name) > 64 || strings.Trim(tool.Name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
					t.Errorf("%q", tool.Name)
				}
				if strings.HasPrefix(tool.Name, "a_") {
					r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: strings.ToUpper(tool.Name)})
					of[sdkText(t, r, err)] = tool.Name
				}
			}
			collision, _ := canonical("a", "b_c")
			want := map[string]string{
				"a b_c": digested(collision, "a", "b_c"), "a_b c": digested(collision, "a_b", "c"), "a_b other": "a_b_other",
				"a Read File": "a_read_file", "a " + long: digested("a_"+long, "a", long),
			}
			if fmt.Sprint(of) != fmt.Sprint(want) {
				t.Errorf("got  %v\nwant %v", of, want)
			}
			if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "a_nothing"}); err == nil || !strings.Contains(err.Error(), "Unknown tool") {
				t.Error(err)
			}
			r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "tasks_required_compute", Arguments: map[string]any{"ms": 50, "text": "a task"}})
			if got := sdkText(t, r, err); got != "a task" {
				t.Error(got)
			}

			prompts, err := c.ListPrompts(t.Context(), nil)
			if err != nil || len(prompts.Prompts) != 2 {
				t.Fatal(prompts, err)
			}
			if p, err := c.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "a_b_greet"}); err != nil || p.Description != "of a_b" {
				t.Error(p, err)
			}
			for _, name := range []string{"a_b", "a"} {
				if r, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "test://" + name}); err != nil || r.Contents[0].Text != "of "+name {
					t.Error(r, err)
				}
			}
			if version == mcp.Version2025_11_25 {
				addTool(one, "a", "new")
				waitFor(t, changed)
				one.RemoveTools("new")
			}
		})
	}

	t.Run("tasks and sessions", func(t *testing.T) {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			c := g.client(era, "all")
			id := c.task("TASKS_compute", `{"ms":1000,"text":"x"}`)
			g.restart(nil)
			if text, _, err := c.result(id); text != "x" || err != nil {
				t.Error(text, err)
			}
			if text, _, err := c.result(c.task("tasks_compute", `{"ms":10,"text":"y"}`)); text != "y" || err != nil {
				t.Error(text, err)
			}
		}
	})

	t.Run("the name is taken", func(t *testing.T) {
		if a, err := g.gateway.Open(AccessOptions{Servers: []Server{first}, Tasks: &TaskOptions{Store: g.store}, Aggregate: "a"}); err == nil {
			t.Error(a.Close())
		}
	})
}

func TestAggregateTellsModernClientsOfChanges(t *testing.T) {
	one, first := startCatalog(t, "one", "tool")
	_, second := startCatalog(t, "two", "tool")
	g := &taskGateway{t: t, dir: t.TempDir(), options: AccessOptions{Servers: []Server{first, second}, Token: taskToken, Tasks: &TaskOptions{}, Aggregate: "all"}}
	g.start("127.0.0.1:0")
	t.Cleanup(g.stop)
	c := g.client(mcp.Modern, "all")
	notes := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Call(ctx, mcp.Call{ // it is ended below
			Method: mcp.MethodListen, Params: json.RawMessage(`{"notifications":{"toolsListChanged":true}}`),
			Notified: func(method string, _ json.RawMessage) { notes <- method },
		})
	}()
	defer func() { cancel(); <-ended }()
	if got := waitFor(t, notes); got != mcp.NoteAcknowledged {
		t.Fatal(got)
	}
	// That the servers have the subscription, too, nobody tells us.
	eventually(t, "the change was not told", func() bool {
		addTool(one, "one", "new")
		one.RemoveTools("new")
		return len(notes) > 0
	})
	for len(notes) > 0 {
		if got := <-notes; got != noteToolsChanged {
			t.Error(got)
		}
	}
}
