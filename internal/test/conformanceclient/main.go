// Command conformanceclient does what the official MCP conformance suite wants of a client, with
// the client that the gateway has:
//
//	conformance client --command ./conformanceclient --requirements 2026-07-28
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

func main() {
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	if scenario == "" || len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr,
			"this is started by the MCP conformance suite, which sets MCP_CONFORMANCE_SCENARIO and gives the URL of a server")
		os.Exit(2)
	}
	var c conformanceClient
	if err := c.play(context.Background(), os.Args[1], scenario,
		[]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// conformanceClient is a client that accepts every elicitation with the defaults.
type conformanceClient struct {
	*mcp.Client
}

// toolCall is a call of a tool.
type toolCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (c *conformanceClient) play(ctx context.Context, url, scenario string, suite []byte) (err error) {
	o := mcp.ClientOptions{Capabilities: json.RawMessage(`{"elicitation":{}}`), Asked: acceptDefaults}
	if c.Client, err = mcp.Connect(ctx, mcp.Target{URL: url}, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	tools, err := c.list(ctx, mcp.MethodToolsList, "tools")
	if err != nil {
		return err
	}
	var calls []toolCall
	switch scenario {
	case "tools_call":
		calls = []toolCall{{"add_numbers", json.RawMessage(`{"a":5,"b":3}`)}}
	case "json-schema-2020-12-preservation":
		at := slices.IndexFunc(tools, func(t jsonobj.Object) bool { return t.Text("name") == "json_schema_2020_12_tool" })
		if at < 0 {
			return errors.New("the tool json_schema_2020_12_tool is not there")
		}
		calls = []toolCall{{"json_schema_echo", jsonobj.Object{{Key: "schema", Value: tools[at].Get("inputSchema")}}.JSON()}}
	case "sep-2322-client-request-state":
		for _, name := range []string{"test_mrtr_echo_state",
			"test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
			calls = append(calls, toolCall{Name: name})
		}
	case "http-custom-headers":
		var given struct {
			ToolCalls []toolCall `json:"toolCalls"`
		}
		if err := json.Unmarshal(suite, &given); err != nil {
			return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
		}
		calls = given.ToolCalls
	case "http-invalid-tool-headers":
		for _, t := range tools {
			calls = append(calls, toolCall{t.Text("name"), json.RawMessage(`{"region":"us-west1"}`)})
		}
	case "http-standard-headers":
		if err := c.readFirst(ctx); err != nil {
			return err
		}
		fallthrough
	default:
		for _, t := range tools {
			calls = append(calls, toolCall{Name: t.Text("name")})
		}
	}
	for _, call := range calls {
		if err := c.callTool(ctx, call); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", call.Name, err) // the suite judges whether it was right
		}
	}
	return nil
}

// list returns the items of a list that has one page.
func (c *conformanceClient) list(ctx context.Context, method, key string) ([]jsonobj.Object, error) {
	result, err := c.Call(ctx, mcp.Call{Method: method})
	if err != nil {
		return nil, err
	}
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		return nil, err
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(o.Get(key), &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	var items []jsonobj.Object
	for _, r := range raw {
		item, err := jsonobj.ParseObject(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		items = append(items, item)
	}
	return items, nil
}

// readFirst reads the first resource and the first prompt.
func (c *conformanceClient) readFirst(ctx context.Context) error {
	resources, err := c.list(ctx, "resources/list", "resources")
	if err != nil {
		return err
	}
	prompts, err := c.list(ctx, "prompts/list", "prompts")
	if err != nil {
		return err
	}
	if len(resources) > 0 {
		_, err = c.Call(ctx, mcp.Call{
			Method: "resources/read", Params: jsonobj.Object{{Key: "uri", Value: resources[0].Get("uri")}}.JSON(),
		})
	}
	if len(prompts) > 0 && err == nil {
		_, err = c.Call(ctx, mcp.Call{
			Method: "prompts/get", Params: jsonobj.Object{{Key: "name", Value: prompts[0].Get("name")}}.JSON(),
		})
	}
	return err
}

// maxConformanceRounds is how often a server may ask for input for one call.
const maxConformanceRounds = 10

// callTool calls a tool, and answers the questions that a modern server asks before it answers.
func (c *conformanceClient) callTool(ctx context.Context, call toolCall) error {
	if call.Arguments == nil {
		call.Arguments = json.RawMessage("{}")
	}
	params := jsonobj.Object{{Key: "name", Value: jsonobj.Quote(call.Name)}, {Key: "arguments", Value: call.Arguments}}
	for range maxConformanceRounds {
		result, err := c.Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: params.JSON()})
		if err != nil {
			return err
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil {
			return err
		}
		switch kind := o.Text("resultType"); kind {
		case "", "complete":
			return nil
		case "input_required":
		default:
			return fmt.Errorf("unknown resultType %q", kind)
		}
		responses := jsonobj.Object{}
		for _, request := range o.Object("inputRequests") {
			asked, err := jsonobj.ParseObject(request.Value)
			if err != nil {
				return err
			}
			answer, failed := acceptDefaults(ctx, asked.Text("method"), asked.Get("params"))
			if failed != nil {
				return failed
			}
			responses = append(responses, jsonobj.Member{Key: request.Key, Value: answer})
		}
		params = params.Delete("requestState").Set("inputResponses", responses.JSON())
		if state := o.Get("requestState"); state != nil {
			params = params.Set("requestState", state)
		}
	}
	return fmt.Errorf("the server asked for input %d times", maxConformanceRounds)
}

// acceptDefaults answers an elicitation with the defaults of its fields; a boolean without one is
// true.
func acceptDefaults(_ context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	if method != "elicitation/create" {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "the client does not support %s", method)
	}
	o, err := jsonobj.ParseObject(params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	content := jsonobj.Object{}
	for _, property := range o.Object("requestedSchema").Object("properties") {
		schema, err := jsonobj.ParseObject(property.Value)
		switch {
		case err != nil:
		case schema.Has("default"):
			content = content.Set(property.Key, schema.Get("default"))
		case schema.Text("type") == "boolean":
			content = content.Set(property.Key, json.RawMessage("true"))
		}
	}
	return jsonobj.Object{
		{Key: "action", Value: json.RawMessage(`"accept"`)}, {Key: "content", Value: content.JSON()},
	}.JSON(), nil
}
