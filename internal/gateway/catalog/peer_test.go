package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/tasks"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// startCatalog is a server of the SDK with tools that say which they are, a prompt and a resource.
func startCatalog(t *testing.T, name string, tools ...string) (*sdk.Server, gateway.Server) {
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
	return s, gateway.Server{Name: name, Target: mcp.Target{URL: h.URL}}
}

func addTool(s *sdk.Server, server, tool string) {
	s.AddTool(&sdk.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: server + " " + tool}}}, nil
	})
}

// allGateway is a gateway with one endpoint more, all, for its servers.
type allGateway struct {
	t       *testing.T
	dir     string
	options gateway.AccessOptions
	store   *sqlite.Store

	gateway   *gateway.Gateway
	access    *gateway.Access
	aggregate *aggregate
}

const allToken = "a-token-that-survives"

// aggregated starts a gateway with one endpoint more for its servers.
func aggregated(t *testing.T, servers ...gateway.Server) *allGateway {
	t.Helper()
	g := &allGateway{t: t, dir: t.TempDir(), options: gateway.AccessOptions{Servers: servers, Token: allToken}}
	g.options.Combine = func(endpoints []*gateway.Endpoint, tasks gateway.Tasks) gateway.Combined {
		g.aggregate = newAggregate("all", endpoints, tasks)
		return g.aggregate
	}
	g.start("127.0.0.1:0")
	t.Cleanup(g.stop)
	return g
}

func (g *allGateway) start(address string) {
	g.t.Helper()
	var err error
	if g.store, err = sqlite.Open(g.dir, store.Options{}); err != nil {
		g.t.Fatal(err)
	}
	tasks, err := tasks.New(tasks.Options{Store: g.store}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.options.Tasks = tasks
	if g.gateway, err = gateway.Listen(address); err != nil {
		g.t.Fatal(err)
	}
	if g.access, err = g.gateway.Open(g.options); err != nil {
		g.t.Fatal(err)
	}
}

func (g *allGateway) stop() {
	if err := errors.Join(g.gateway.Close(), g.store.Close()); err != nil {
		g.t.Error(err)
	}
}

// restart is what clients see of a new process.
func (g *allGateway) restart() {
	g.t.Helper()
	address := g.gateway.Addr().String()
	g.stop()
	g.start(address)
}

func (g *allGateway) client(era mcp.Era) *gatewaytest.TaskClient {
	g.t.Helper()
	return gatewaytest.ConnectTaskClient(g.t, g.access, era, "all")
}

func (g *allGateway) clientWith(server string, o mcp.ClientOptions) *gatewaytest.TaskClient {
	g.t.Helper()
	return gatewaytest.ConnectTaskClientWith(g.t, g.access, server, o)
}

// listen has a modern client listen until the test ends, and returns when the server has acknowledged
// that. The methods of what it is told after that come on notes.
func listen(t *testing.T, c *mcp.Client, wants string, notes chan string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Call(ctx, mcp.Call{ // it is ended below
			Method: mcp.MethodListen, Params: json.RawMessage(`{"notifications":` + wants + `}`),
			Notified: func(method string, _ json.RawMessage) { notes <- method },
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	if got := gatewaytest.WaitFor(t, notes); got != mcp.NoteAcknowledged {
		t.Fatal(got)
	}
}
