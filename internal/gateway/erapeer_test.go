package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
