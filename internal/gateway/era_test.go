package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// eraServer is a server of the Go SDK that uses everything that a server can. In Modern it asks by
// input requests; in Legacy the SDK makes requests of them.
type eraServer struct {
	*sdk.Server
	waiting    chan struct{} // gets a value when a call of "wait" has begun
	cancelled  chan struct{} // gets a value when it was cancelled
	subscribed chan string   // gets the resources that are subscribed to
}

const (
	eraPages   = 7 // tools, on pages of three
	eraChanges = "test://changes"
)

func newEraServer(versions []string) *eraServer {
	s := &eraServer{waiting: make(chan struct{}, 10), cancelled: make(chan struct{}, 10), subscribed: make(chan string, 10)}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: "era", Version: "1"}, &sdk.ServerOptions{
		Instructions: "use it well", PageSize: 3, SupportedProtocolVersions: versions,
		CompletionHandler: func(_ context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{req.Params.Argument.Value + "-done"}}}, nil
		},
		SubscribeHandler: func(_ context.Context, req *sdk.SubscribeRequest) error {
			s.subscribed <- req.Params.URI
			return nil
		},
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		Capabilities:       &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}},
	})
	add := func(name string, h sdk.ToolHandler) {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, h)
	}
	add("echo", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text("%s", req.Params.Arguments), nil
	})
	add("fail", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r := text("it went wrong")
		r.IsError = true
		return r, nil
	})
	add("progress", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for i := range 100 {
			if err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, err
			}
		}
		return text("done"), nil
	})
	add("log", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, level := range []sdk.LoggingLevel{"debug", "info", "warning", "error"} {
			if err := req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: level, Data: "said as " + string(level)}); err != nil {
				return nil, err
			}
		}
		return text("done"), nil
	})
	add("wait", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.waiting <- struct{}{}
		<-ctx.Done()
		s.cancelled <- struct{}{}
		return nil, ctx.Err()
	})
	add("change", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		add("late", nil)
		return text("changed"), s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: eraChanges})
	})
	add("ask", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		answers := req.Params.InputResponses
		if answers == nil {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{
				"name":  &sdk.ElicitParams{Message: "What is your name?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}},
				"model": &sdk.CreateMessageParams{MaxTokens: 10, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: "Say something"}}}},
				"roots": &sdk.ListRootsParams{},
			}, RequestState: "the state"}, nil
		}
		var said []string
		for _, key := range []string{"name", "model", "roots"} {
			switch a := answers[key].(type) {
			case *sdk.ElicitResult:
				said = append(said, fmt.Sprint(a.Action, " ", a.Content["name"]))
			case *sdk.CreateMessageResult:
				said = append(said, a.Content.(*sdk.TextContent).Text)
			case *sdk.CreateMessageWithToolsResult:
				said = append(said, a.Content[0].(*sdk.TextContent).Text)
			case *sdk.ListRootsResult:
				said = append(said, a.Roots[0].URI)
			default:
				said = append(said, fmt.Sprintf("%T", a))
			}
		}
		return text("%s", strings.Join(said, ", ")), nil
	})
	s.AddPrompt(&sdk.Prompt{Name: "greet", Arguments: []*sdk.PromptArgument{{Name: "who"}}}, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "Greet " + req.Params.Arguments["who"]}}}}, nil
	})
	read := func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, Text: "read " + req.Params.URI}}}, nil
	}
	s.AddResource(&sdk.Resource{Name: "changes", URI: eraChanges}, read)
	s.AddResourceTemplate(&sdk.ResourceTemplate{Name: "any", URITemplate: "test://any/{id}"}, read)
	return s
}

func text(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func textOf(t *testing.T, r *sdk.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%d contents, want 1", len(r.Content))
	}
	return r.Content[0].(*sdk.TextContent).Text
}

// target serves it over a transport.
func (s *eraServer) target(t *testing.T, era mcp.Era, transport string) mcp.Target {
	if transport == "stdio" {
		return mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
			ours, theirs := pipes()
			session, err := s.Connect(context.Background(), &sdk.IOTransport{Reader: theirs, Writer: theirs}, nil)
			if err != nil {
				return nil, err
			}
			return &pipe{ours, ours, func() error {
				err := ours.Close()
				_ = session.Wait() // that its connection was closed it calls an error
				return err
			}}, nil
		}}
	}
	var handler http.Handler
	get := func(*http.Request) *sdk.Server { return s.Server }
	switch transport {
	case "sse":
		handler = sdk.NewSSEHandler(get, nil)
	default:
		handler = sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{Stateless: era == mcp.Modern, PropagateRequestCancellation: era == mcp.Modern})
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return mcp.Target{URL: server.URL, SSE: transport == "sse"}
}

// eraClient is a client of the Go SDK and what it was told.
type eraClient struct {
	*sdk.ClientSession
	tools, resources chan string
	progress         chan float64
	logs             chan string
	subscribed       chan struct{} // gets a value when a modern server will tell of resources
}

func newEraClient(t *testing.T, a *gateway.Access, era mcp.Era, transport string) *eraClient {
	t.Helper()
	c := &eraClient{tools: make(chan string, 100), resources: make(chan string, 100), progress: make(chan float64, 1000), logs: make(chan string, 100), subscribed: make(chan struct{}, 10)}
	client := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return &sdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &sdk.TextContent{Text: "something"}}, nil
		},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { c.tools <- "changed" },
		ResourceUpdatedHandler: func(_ context.Context, req *sdk.ResourceUpdatedNotificationRequest) { c.resources <- req.Params.URI },
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			c.progress <- req.Params.Progress
		},
		LoggingMessageHandler: func(_ context.Context, req *sdk.LoggingMessageRequest) { c.logs <- fmt.Sprint(req.Params.Data) },
	})
	client.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if params, ok := req.GetParams().(*sdk.SubscriptionsAcknowledgedParams); ok && len(params.Notifications.ResourceSubscriptions) > 0 {
				c.subscribed <- struct{}{}
			}
			return next(ctx, method, req)
		}
	})
	client.AddRoots(&sdk.Root{URI: "file:///root"})
	var over sdk.Transport = &sdk.StreamableClientTransport{Endpoint: a.URLWithToken("era")}
	if transport != "http" {
		ours, theirs := pipes()
		ended := make(chan error, 1)
		go func() {
			if transport == "stdio" {
				ended <- a.ServeStdio(context.Background(), "era", theirs, theirs)
			} else {
				ended <- gateway.Bridge(context.Background(), a.URL("era"), a.Token(), theirs, theirs)
			}
		}()
		t.Cleanup(func() {
			_ = ours.Close()
			_ = testenv.Receive(t, ended, "the end of what serves the client") // it was ended
		})
		over = &sdk.IOTransport{Reader: ours, Writer: ours}
	}
	o := &sdk.ClientSessionOptions{ProtocolVersion: mcp.Version2026_07_28}
	if era == mcp.Legacy {
		o.ProtocolVersion = mcp.Version2025_11_25
	}
	session, err := client.Connect(soon(t), over, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // over the bridge it calls the end of its pipe an error
	if got := session.InitializeResult().ProtocolVersion; got != o.ProtocolVersion {
		t.Fatalf("the client speaks %s, want %s", got, o.ProtocolVersion)
	}
	c.ClientSession = session
	return c
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestErasWithTheSDK has clients and servers of the Go SDK use everything that MCP has, each era
// with each, over every transport.
func TestErasWithTheSDK(t *testing.T) {
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			versions := []string{mcp.Version2026_07_28}
			if p.server == mcp.Legacy {
				versions = slices.Clone(mcp.LegacyVersions)
			}
			s := newEraServer(versions)
			a := open(t, gateway.Server{Name: "era", Target: s.target(t, p.server, p.upstream)})
			c := newEraClient(t, a, p.client, p.downstream)
			ctx := soon(t)

			if got := c.InitializeResult().Instructions; got != "use it well" {
				t.Errorf("instructions %q", got)
			}
			if err := c.Ping(ctx, nil); err != nil && p.client == mcp.Legacy {
				t.Errorf("ping: %v", err)
			}
			eraReads(t, c)
			eraCalls(t, c, p)
			eraAsks(t, c)
			eraCancels(t, s, c)
			eraChangesAreTold(t, s, c, p)
		})
	}
}

// eraReads reads what a server offers.
func eraReads(t *testing.T, c *eraClient) {
	ctx := soon(t)
	var names []string
	for tool, err := range c.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	if want := "ask change echo fail log progress wait"; strings.Join(names, " ") != want || len(names) != eraPages {
		t.Errorf("tools %q, want %s", names, want)
	}
	prompts, err := c.ListPrompts(ctx, nil)
	if err != nil || len(prompts.Prompts) != 1 {
		t.Errorf("prompts/list: %v, %v", prompts, err)
	}
	prompt, err := c.GetPrompt(ctx, &sdk.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "Bob"}})
	if err != nil || prompt.Messages[0].Content.(*sdk.TextContent).Text != "Greet Bob" {
		t.Errorf("prompts/get: %v, %v", prompt, err)
	}
	if resources, err := c.ListResources(ctx, nil); err != nil || len(resources.Resources) != 1 {
		t.Errorf("resources/list: %v, %v", resources, err)
	}
	if templates, err := c.ListResourceTemplates(ctx, nil); err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("resources/templates/list: %v, %v", templates, err)
	}
	resource, err := c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "test://any/7"})
	if err != nil || resource.Contents[0].Text != "read test://any/7" {
		t.Errorf("resources/read: %v, %v", resource, err)
	}
	if _, err := c.ReadResource(ctx, &sdk.ReadResourceParams{URI: "other://x"}); err == nil {
		t.Error("resources/read of what is not there did not fail")
	}
	completed, err := c.Complete(ctx, &sdk.CompleteParams{
		Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "greet"}, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "Bo"},
	})
	if err != nil || !slices.Equal(completed.Completion.Values, []string{"Bo-done"}) {
		t.Errorf("completion/complete: %v, %v", completed, err)
	}
}

// eraCalls calls tools.
func eraCalls(t *testing.T, c *eraClient, p pair) {
	ctx := soon(t)
	r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"a": "b"}})
	if got := textOf(t, r, err); got != `{"a":"b"}` {
		t.Errorf("echo: %s", got)
	}
	if r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "fail"}); err != nil || !r.IsError {
		t.Errorf("fail: %v, %v", r, err)
	}
	if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "no such tool"}); err == nil {
		t.Error("a tool that does not exist could be called")
	}

	params := &sdk.CallToolParams{Name: "progress"}
	params.SetProgressToken("the token")
	r, err = c.CallTool(ctx, params)
	textOf(t, r, err)
	for i := range 100 {
		if got := testenv.Receive(t, c.progress, "progress"); got != float64(i) {
			t.Fatalf("progress %v came when %d should have", got, i)
		}
	}

	params = &sdk.CallToolParams{Name: "log"}
	if p.client == mcp.Modern {
		params.Meta = sdk.Meta{mcp.MetaLogLevel: "warning"}
	} else if err := c.SetLoggingLevel(ctx, &sdk.SetLoggingLevelParams{Level: "warning"}); err != nil {
		t.Fatal(err)
	}
	r, err = c.CallTool(ctx, params)
	textOf(t, r, err)
	for _, want := range []string{"said as warning", "said as error"} {
		if got := testenv.Receive(t, c.logs, "a log message"); got != want {
			t.Errorf("log message %q, want %q", got, want)
		}
	}
}

// eraAsks has the server ask its client three things in the middle of a call.
func eraAsks(t *testing.T, c *eraClient) {
	r, err := c.CallTool(soon(t), &sdk.CallToolParams{Name: "ask"})
	if got, want := textOf(t, r, err), "accept Ada, something, file:///root"; got != want {
		t.Errorf("the server has heard %q, want %q", got, want)
	}
}

// eraCancels leaves a call, which the server must be told.
func eraCancels(t *testing.T, s *eraServer, c *eraClient) {
	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "wait"})
		ended <- err
	}()
	testenv.Receive(t, s.waiting, "the call")
	cancel()
	if err := testenv.Receive(t, ended, "the end of the call"); !errors.Is(err, context.Canceled) {
		t.Errorf("the call has ended with %v", err)
	}
	testenv.Receive(t, s.cancelled, "the cancellation at the server")
}

// eraChangesAreTold changes what the server offers.
func eraChangesAreTold(t *testing.T, s *eraServer, c *eraClient, p pair) {
	ctx := soon(t)
	if err := c.Subscribe(ctx, &sdk.SubscribeParams{URI: eraChanges}); err != nil {
		t.Fatal(err)
	}
	if p.client == mcp.Modern {
		testenv.Receive(t, c.subscribed, "the acknowledgement")
	}
	if p.server == mcp.Legacy {
		if got := testenv.Receive(t, s.subscribed, "the subscription"); got != eraChanges {
			t.Errorf("%s was subscribed to", got)
		}
	}
	r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "change"})
	textOf(t, r, err)
	testenv.Receive(t, c.tools, "the change of the tools")
	if got := testenv.Receive(t, c.resources, "the change of the resource"); got != eraChanges {
		t.Errorf("%s has changed", got)
	}
	if r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "echo"}); err != nil {
		t.Errorf("%v, %v", r, err)
	}
	if err := c.Unsubscribe(ctx, &sdk.UnsubscribeParams{URI: eraChanges}); err != nil {
		t.Errorf("resources/unsubscribe: %v", err)
	}
}
