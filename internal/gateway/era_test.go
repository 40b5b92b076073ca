package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

const (
	eraPages   = 7 // tools, on pages of three
	eraChanges = "test://changes"
)

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestErasWithTheSDK has clients and servers of the Go SDK use everything that MCP has, each era
// with each, over every transport.
func TestErasWithTheSDK(t *testing.T) {
	testenv.NeedSlow(t)
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

// TestRequestsOfServersReachTheSDK has a server of 2025-11-25 make each request that such servers
// can make, as bare as the protocol allows, in the middle of a call of an SDK client of either era.
func TestRequestsOfServersReachTheSDK(t *testing.T) {
	requests := []struct{ method, params, want string }{
		{"ping", "", `{}`},
		{"roots/list", "", `file:///root`}, // G29: without params, as Playwright's server asks
		{"roots/list", "{}", `file:///root`},
		{"sampling/createMessage", `{"maxTokens":10,"messages":[{"role":"user","content":{"type":"text","text":"Say something"}}]}`, `something`},
		{"elicitation/create", `{"message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, `Ada`},
	}
	for _, p := range pairs() {
		if p.server != mcp.Legacy {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			s := &rawServer{era: mcp.Legacy, serve: func(q *rawRequest) string {
				if q.Method != mcp.MethodToolsCall {
					return `"result":{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`
				}
				var heard []string
				for _, r := range requests {
					m := q.ask(r.method, r.params)
					heard = append(heard, string(m.Result)+string(m.Error))
				}
				said, _ := json.Marshal(strings.Join(heard, "\n"))
				return `"result":{"content":[{"type":"text","text":` + string(said) + `}]}`
			}}
			a := open(t, gateway.Server{Name: "era", Target: s.target(t, p.upstream)})
			c := newEraClient(t, a, p.client, p.downstream)
			r, err := c.CallTool(soon(t), &sdk.CallToolParams{Name: "ask"})
			heard := strings.Split(textOf(t, r, err), "\n")
			for i, request := range requests {
				if !strings.Contains(heard[i], request.want) || strings.Contains(heard[i], `"code"`) {
					t.Errorf("%s %s: the server has heard %s, want %s", request.method, request.params, heard[i], request.want)
				}
			}
		})
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
